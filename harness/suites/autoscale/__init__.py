"""Autoscaler x mechanism: loads that change, policies that follow them, mechanisms that carry it out."""
