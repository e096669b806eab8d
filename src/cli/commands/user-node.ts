// Users in a node's store, for `flagstone user` without `--file`: over the HTTP API, with an admin key.

import { pages, pageTable } from "../admin/ask.ts";
import { time } from "../admin/output.ts";
import { clientOf } from "../admin/target.ts";
import type { CommandInput } from "../command.ts";
import { exitCodes } from "../exit-codes.ts";

export async function putUser(
  input: CommandInput,
  user: string,
  password: string,
  expect: "new" | "known",
): Promise<number> {
  const scram = input.options.isOn("scram");
  await clientOf(input).putUser({ params: { user }, body: { password, scram, expect } });
  input.io.out(`${expect === "new" ? "added" : "changed"} ${JSON.stringify(user)}\n`);
  return exitCodes.ok;
}

export async function removeUser(input: CommandInput, user: string): Promise<number> {
  await clientOf(input).deleteUser({ params: { user } });
  input.io.out(`removed ${JSON.stringify(user)}\n`);
  return exitCodes.ok;
}

export async function listUsers(input: CommandInput): Promise<number> {
  const admin = clientOf(input);
  const page = await pages(input, (query) => admin.listUsers({ query }));
  const table = pageTable(
    page,
    [
      { head: "USER", cell: (row) => row.name },
      { head: "HASH", cell: (row) => row.form },
      { head: "SINCE", cell: (row) => time(row.sinceUs) },
    ],
    "users",
  );
  input.io.out(table);
  return exitCodes.ok;
}
