"""Settings of Sphinx for the site; `./inv docs` builds it from pages that harness/docs makes."""

project = "rescale-bench"
copyright = "the rescale-bench developers"  # noqa: A001 - Sphinx's name
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4  # links to headings, as repository hosts have them
smartquotes = False  # options begin with two dashes
default_role = "py:obj"  # docstrings name code in single backticks: a link where the name is known

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 80
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_numpy_docstring = False
napoleon_use_ivar = True

pygments_dark_style = "github-dark"  # the usual one underlines names of modules
html_theme = "furo"  # no font and no script from elsewhere; light and dark, as the reader's system has it
html_title = "rescale-bench"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
