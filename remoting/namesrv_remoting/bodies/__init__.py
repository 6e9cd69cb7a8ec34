"""What do the bodies of requests and responses hold?"""
