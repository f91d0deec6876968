"""One broker as a whole: the files and stores that it opens, and the connections of its parts."""
