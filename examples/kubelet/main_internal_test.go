// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A wrong command line or file ends the program with an error that names the flag, or the file and its field.
func TestRunRefusesWrongInput(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(file, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: -1\n"), 0o600))
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--no-such-flag"}, "failed to parse kubelet flag: unknown flag: --no-such-flag"},
		{[]string{"start"}, "unknown command start"},
		{[]string{"--max-pods=many"}, `invalid argument "many" for "--max-pods" flag`},
		{[]string{"--config=/nonexistent"}, "/nonexistent: no such file or directory"},
		{[]string{"--config=" + file, "--root-dir=" + t.TempDir()}, file + ": maxPods: -1 is not between 0 and"},
		{[]string{"--config=" + file, "--root-dir=" + t.TempDir(), "--max-pods=-2"}, "--max-pods=-2: maxPods: -2"},
	} {
		require.ErrorContains(t, run(t.Context(), test.args), test.want, "%q", test.args)
	}
}

// Scripts read the version of the program.
func Example_version() {
	if err := run(context.Background(), []string{"--version"}); err != nil {
		panic(err)
	}
	// Output: Kubernetes v1.37.1+nodeagent
}
