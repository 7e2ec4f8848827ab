"""The rules: what each looks for in the evidence, in words and numbers, and the function that finds it. Pure."""
