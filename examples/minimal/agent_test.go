// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/seed81659283/nodeagent/internal/exetest"
)

// program is the example program.
var program exetest.Program

func TestMain(m *testing.M) { os.Exit(program.Main(m)) }

// podYAML is a pod of one container that runs a shell command.
func podYAML(name, script string, spec ...string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
spec:
  terminationGracePeriodSeconds: 2
%s  containers:
    - name: main
      image: nodeagent.test/busybox:1
      command: ["/bin/sh", "-c", %q]
`, name, strings.Join(spec, ""), script)
}

const sleeper = "trap 'exit 0' TERM; while :; do sleep 0.1; done"

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), exetest.TimeoutFactor*d)
	t.Cleanup(cancel)
	return ctx
}
