// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"flag"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each command has its own flags, and an error names the missing or unknown flag.
func TestRunSelectsCommand(t *testing.T) {
	for args, want := range map[string]string{
		"":                                 "usage: bench static|cluster|api|nodes",
		"tls":                              `unknown command "tls"`,
		"static -bridge b":                 "flag provided but not defined: -bridge",
		"static":                           "-cri and -image are needed",
		"cluster":                          "-cri, -image and -bridge are needed",
		"cluster -n 1 stray":               `unexpected argument "stray"`,
		"api -cri unix:///x":               "-cri and -image are needed",
		"nodes":                            "-virtualnode is needed",
		"nodes -virtualnode v -nodes 10,0": `-nodes: "0" is not a positive number`,
		"nodes -virtualnode v -kwok k":     "-kwok needs -stages",
		"api -cri unix:///x two":           `unexpected argument "two"`,
	} {
		err := run(t.Context(), strings.Fields(args), io.Discard)
		require.ErrorContains(t, err, want, args)
	}
	require.ErrorIs(t, run(t.Context(), []string{"api", "-h"}, io.Discard), flag.ErrHelp)
	var out strings.Builder
	require.NoError(t, run(t.Context(), []string{"help"}, &out))
	require.Contains(t, out.String(), "cluster  an agent as a node")
}
