// One of several processes leads. The others wait.
import { LockManager } from "leased";

const locks = new LockManager("http://127.0.0.1:7420");
await locks.request("leader/typescript", async (lease) => {
  console.log(`leading with token ${lease.token}`);
  for (let turns = 0; turns < 3 && !lease.signal.aborted; turns++) {
    await new Promise((resolve) => setTimeout(resolve, 10)); // one piece of work, with the token
  }
});
await locks.close();
