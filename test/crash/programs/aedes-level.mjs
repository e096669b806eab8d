// Aedes on aedes-persistence-level, the peer of examples/aedes.mjs: `aedes-level.mjs DIR PORT`.
import { createServer } from "node:net";
import { Aedes } from "aedes";
import AsyncLevelPersistence from "aedes-persistence-level/asyncPersistence.js";
import { ClassicLevel } from "classic-level";

const [, , dir = "./aedes-level-data", port = "1883"] = process.argv;
const persistence = new AsyncLevelPersistence(new ClassicLevel(dir));
const aedes = await Aedes.createBroker({ persistence });
const server = createServer(aedes.handle).listen(Number(port), "127.0.0.1");
server.on("listening", () => console.log(`ready ${server.address().port}`));
