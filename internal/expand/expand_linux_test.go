// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package expand_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed81659283/nodeagent/internal/expand"
)

// The limits equal those of Linux: a command above a limit fails to start, and a command within the limits starts.
func TestLimitsEqualKernels(t *testing.T) {
	run := func(args, env []string) error {
		cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"-test.run=^$"}, args...)...)
		cmd.Env = env
		return cmd.Run()
	}
	if os.Getpagesize() != 4096 {
		t.Skip("the kernel limit depends on the page size, which is not 4 KiB")
	}
	largest := "X=" + strings.Repeat("x", expand.MaxArgument-len("X=")-1)
	assert.NoError(t, run(nil, []string{largest}))
	assert.ErrorIs(t, run(nil, []string{largest + "x"}), syscall.E2BIG)
	assert.NoError(t, run([]string{largest}, nil))
	assert.ErrorIs(t, run([]string{largest + "x"}, nil), syscall.E2BIG)

	var stack syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_STACK, &stack); err != nil || stack.Cur != 8<<20 {
		t.Skip("the kernel limit of all strings is a quarter of the stack limit, which is not 8 MiB")
	}
	small := strings.Repeat("y", 1<<10-1)
	fits := expand.MaxArguments/(1<<10+8) - 16 // the program path and the flag count as strings, too
	env := make([]string, 0, fits+32)
	for len(env) < fits {
		env = append(env, small)
	}
	assert.NoError(t, run(nil, env))
	for range 32 {
		env = append(env, small)
	}
	assert.ErrorIs(t, run(nil, env), syscall.E2BIG)
}
