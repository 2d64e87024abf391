package pooler

var KeepsNames = keepsNames
