"""A model that answers after a while, in a process of its own."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def slow_model(folder: Path, seconds: float) -> Iterator[dict[str, str]]:
    """A model that answers after a while, in a process of its own, and the variables that name
    it.
    """
    script = folder / "model.py"
    script.write_text(SLOW_MODEL)
    process = subprocess.Popen(
        [sys.executable, str(script), str(seconds)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        yield {
            "LLM_MODEL_ID": "slow",
            "LLM_API_KEY": "none",
            "LLM_BASE_URL": f"http://127.0.0.1:{port}/v1",
        }
    finally:
        process.kill()
        process.communicate()


SLOW_MODEL = """
import json, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Answer(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(float(sys.argv[1]))
        said = {"role": "assistant", "content": "Thought."}
        choices = [{"message": said, "finish_reason": "stop"}]
        usage = {"prompt_tokens": 1, "completion_tokens": 1}
        body = {"model": "slow", "choices": choices, "usage": usage}
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        try:
            self.wfile.write(data)
        except OSError:
            pass

    def log_message(self, *_):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
print(server.server_address[1], flush=True)
server.serve_forever()
"""
