// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package memreturn

import "runtime/debug"

// ReturnNow collects garbage and returns unused memory to the kernel, with the pages of the program that were used only before. A program calls it
// when it knows that it has become idle; [Run] finds out itself. The error is about the pages of the program.
func ReturnNow() error {
	debug.FreeOSMemory()
	return unmapProgram()
}
