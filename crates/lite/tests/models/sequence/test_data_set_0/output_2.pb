
words	2one	2two