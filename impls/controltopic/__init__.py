"""Control messages in the data plane: commands in a Kafka topic, each carried out once, from a place in the input on.

After Chi (Mai et al., PVLDB 2018), whose control messages travel with the records. Here they have a topic of their own
and name a place in the input, so that senders need no connection to a query and several queries obey one command.
"""
