// Aedes with its queues, retained messages and wills on Flagstone's store, in ./aedes-data.
import { createServer } from "node:net";
import { Aedes } from "aedes";
import { openPersistence } from "flagstone/aedes";

const persistence = await openPersistence({ dir: process.argv[2] ?? "./aedes-data" });
const aedes = await Aedes.createBroker({ persistence });
const server = createServer(aedes.handle).listen(Number(process.argv[3] ?? 1883), "127.0.0.1");
server.on("listening", () => console.log(`ready ${server.address().port}`));
