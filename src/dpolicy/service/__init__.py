"""The decision point over HTTP: who may ask what, how it is asked, and how it is answered."""
