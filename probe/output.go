// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import "io"

// readOutput reads what a result keeps of r. It stops at [MaxOutput] without
// looking whether more follows, for a body may have no end.
func readOutput(r io.Reader) (string, error) {
	b, err := io.ReadAll(io.LimitReader(r, MaxOutput))
	return string(b), err
}

// result returns a result that holds no more of the output than it may.
func result(o Outcome, output string) Result {
	return Result{Outcome: o, Output: output[:min(len(output), MaxOutput)]}
}
