// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"testing"
	"time"

	"github.com/seed81659283/nodeagent/internal/exetest"
)

// programWithoutMain is the program in testdata, which does not call process.Main.
var programWithoutMain exetest.Program

// A program that does not call process.Main must not start itself repeatedly until the machine is overloaded.
func TestOpenFailsWithoutMain(t *testing.T) {
	t.Chdir("testdata/forgetful")
	for _, test := range []struct {
		mode, starts string
		words        []string // texts in the error
	}{
		{"never", "1", []string{"open process runtime", "call process.Main first in main, and in TestMain"}},
		{"parent only", "2", []string{"StartContainer", "call process.Main first in main, and in TestMain"}},
		{"changed arguments", "2", []string{"StartContainer", "process.Main", "os.Args"}},
	} {
		t.Run(test.mode, func(t *testing.T) {
			p := programWithoutMain.Start(t, test.mode)
			p.Wait(time.Minute)
			p.AwaitLine(time.Second, append([]string{"error:"}, test.words...)...)
			p.AwaitLine(time.Second, "starts: "+test.starts+"\n")
		})
	}
}
