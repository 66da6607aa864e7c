"""Papers that the models come from: their figures and studies, one room a paper."""
