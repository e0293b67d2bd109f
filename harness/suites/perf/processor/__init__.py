"""The same StatefulProcessor by Spark's own transformWithState and by this runtime, in turns."""
