"""Students: embedding -> encoder -> classifier. Settings lie apart from the models, which need PyTorch."""
