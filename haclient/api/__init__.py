"""Parts of the two APIs: receivers and deliveries, and the futures that ``send_nowait`` returns."""
