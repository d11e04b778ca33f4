"""A web application with one factory: its requests share a connection and a sender.

    pip install fastapi uvicorn
    HACLIENT_URL=amqp://127.0.0.1:5672 uvicorn --app-dir examples fastapi_app:app
    curl -i localhost:8000/orders --json '{"item": "tea", "quantity": 2}'

The addresses of the brokers, the password and all options are environment variables (docs/configuration.md).
A request that arrives during a failover waits at most ``SEND_TIMEOUT`` for the new primary.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from fastapi import FastAPI, Request, status
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from haclient import aio
from haclient.errors import HaclientError

SEND_TIMEOUT = 5.0  # seconds


class Order(BaseModel):
    """An order of a customer."""

    item: str
    quantity: int


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with aio.ConnectionFactory.from_env() as factory, factory.connect() as connection:
        print(f"connected to {connection.endpoint}")
        app.state.orders = await connection.create_sender("orders")
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=status.HTTP_202_ACCEPTED)
async def order(order: Order, request: Request) -> dict[str, str]:
    orders: aio.Sender = request.app.state.orders
    outcome = await orders.send(order.model_dump(), timeout=SEND_TIMEOUT)
    return {"outcome": outcome.state.name.lower()}


@app.exception_handler(HaclientError)
async def unavailable(request: Request, error: HaclientError) -> JSONResponse:
    print(f"{request.method} {request.url.path}: {error}")
    # ``delivered`` is null if the outcome is unknown: a repeated order may then be stored twice.
    facts = {"detail": str(error), "delivered": error.delivered, "safe_to_retry": error.safe_to_retry}
    return JSONResponse(facts, status.HTTP_503_SERVICE_UNAVAILABLE)
