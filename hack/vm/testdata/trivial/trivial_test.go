// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package trivial_test

import (
	"os"
	"testing"

	"github.com/seed81659283/nodeagent/hack/vm/testdata/trivial"
)

func TestAnswer(t *testing.T) {
	if os.Getenv("IN_TEST_VM") != "1" {
		t.Error("not in a VM")
	}
	if got := trivial.Answer(); got != 42 {
		t.Errorf("answer %d", got)
	}
	if err := os.WriteFile("scratch", nil, 0o600); err != nil { // in the overlay, not in the checkout
		t.Error(err)
	}
	if os.Getenv("TRIVIAL") == "fail" {
		t.Error("as asked")
	}
}
