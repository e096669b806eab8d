// Chromium without a window, and a web server for the one page that it opens. The page posts lines to
// `/said`; who waits for one gets all that were said when it does not come.

import { type ChildProcess, spawn } from "node:child_process";
import { createHash, X509Certificate } from "node:crypto";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

export type PageOptions = {
  /** Paths of URLs and the files behind them; `/` is the page. */
  readonly files: Readonly<Record<string, string>>;
  readonly query: Readonly<Record<string, string>>;
  /** PEM of the one certificate that is trusted without an authority. */
  readonly trusted: string;
};

const types: Readonly<Record<string, string>> = { html: "text/html", js: "text/javascript" };
const bodyBytesMax = 100_000;

const live = new Set<ChildProcess>();

process.once("exit", () => {
  for (const child of live) child.kill("SIGKILL");
});

export class BrowserPage {
  readonly said: string[] = [];
  readonly #server: Server;
  readonly #profile: string;
  readonly #browser: ChildProcess;
  readonly #exited: Promise<void>;
  #errors = "";
  #wake: () => void = () => undefined;

  private constructor(server: Server, profile: string, browser: ChildProcess) {
    this.#server = server;
    this.#profile = profile;
    this.#browser = browser;
    live.add(browser);
    browser.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.#errors = (this.#errors + text).slice(-5000);
    });
    this.#exited = new Promise((resolve) => {
      const gone = (): void => {
        live.delete(browser);
        resolve();
      };
      browser.once("close", gone).once("error", (error) => {
        this.#errors += `cannot run chromium (Debian: chromium): ${error.message}\n`;
        gone();
      });
    });
  }

  static async open({ files, query, trusted }: PageOptions): Promise<BrowserPage> {
    const profile = await mkdtemp(join(tmpdir(), "flagstone-browser-"));
    let hear: (line: string) => void = () => undefined;
    const server = createServer((request, response) => {
      const { pathname } = new URL(request.url ?? "/", "http://localhost");
      if (request.method === "POST") {
        let body = "";
        request.setEncoding("utf8").on("data", (text: string) => {
          if (body.length < bodyBytesMax) body += text;
        });
        request.on("end", () => {
          hear(body);
          response.end();
        });
        return;
      }
      const file = files[pathname];
      if (file === undefined) {
        response.writeHead(404).end();
        return;
      }
      readFile(file).then(
        (content) => {
          const type = types[file.split(".").at(-1) as string] ?? "text/plain";
          response.writeHead(200, { "content-type": `${type}; charset=utf-8` }).end(content);
        },
        () => response.writeHead(500).end(),
      );
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as AddressInfo;
    const url = `http://localhost:${port}/?${new URLSearchParams(query)}`;
    const browser = spawn("chromium", [...flags(profile, trusted), url], {
      stdio: ["ignore", "ignore", "pipe"],
    });
    const page = new BrowserPage(server, profile, browser);
    hear = (line) => {
      page.said.push(line);
      page.#wake();
    };
    return page;
  }

  /** All lines up to this one. */
  async until(last: string, withinMs: number): Promise<readonly string[]> {
    const deadline = performance.now() + withinMs;
    for (;;) {
      const failed = this.said.find((line) => line.startsWith("failed"));
      if (this.said.includes(last)) return this.said;
      const restMs = deadline - performance.now();
      if (failed !== undefined || restMs <= 0) {
        throw new Error(`the page did not say ${last}:\n${this.said.join("\n")}\n${this.#errors}`);
      }
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, restMs);
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Its own children go with it when it is asked; they do not when it is killed.
    this.#browser.kill("SIGTERM");
    const patience = setTimeout(() => this.#browser.kill("SIGKILL"), 10_000);
    await this.#exited;
    clearTimeout(patience);
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
    await rm(this.#profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }
}

function flags(profile: string, trusted: string): string[] {
  const spki = new X509Certificate(trusted).publicKey.export({ type: "spki", format: "der" });
  const hash = createHash("sha256").update(spki).digest("base64");
  return [
    ...["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
    ...["--no-first-run", "--disable-background-networking", "--disable-component-update"],
    ...["--disable-sync", "--disable-quic"],
    `--user-data-dir=${profile}`,
    `--ignore-certificate-errors-spki-list=${hash}`,
  ];
}
