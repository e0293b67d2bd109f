"""The documentation site: pages made of the code and of the repository's documents, and the program that builds it."""

from harness.options.declared import FLAG, FOLDER, INTEGER, Option

DOCS = (
    Option("serve", "show it on this machine until Ctrl-C", FLAG),
    Option("port", "with --serve: port to show it at, 0 for a free one", INTEGER, default=8000,
           subject="The port", least=0, most=65_535),
    Option("folder", "folder of the site; its start page is index.html", FOLDER, shown="site/"),
)  # fmt: skip
