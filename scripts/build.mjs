// `npm run build`: compiles src/ to dist/ and links the launcher.

import { build } from "./set-up.mjs";

build();
