"""The interfaces of other lock libraries, over the locks of this one."""
