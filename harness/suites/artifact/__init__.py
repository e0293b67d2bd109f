"""The artifact for reviewers: image, reproduction of all results, exports."""
