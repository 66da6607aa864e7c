"""Papers of the models: their figures and studies, one package for each paper."""
