"""What can be switched on and off: a folder for each feature, which no other part names. `listed` lists them."""
