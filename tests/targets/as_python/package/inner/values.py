value = "found from the package itself"
