// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletflags_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
	"github.com/seed81659283/nodeagent/agent/kubeletflags"
)

var update = flag.Bool("update", false, "rewrite FLAGS.md")

const documentHead = `# Flags of the kubelet 1.37

Generated from table.go and the fields of package kubeletconfig by ` + "`go test ./agent/kubeletflags -run TestFlagsDocument -update`" + `.

States: a *supported* flag has the effect that it has in the kubelet. A flag that is *default only* is refused with name and value unless its value
is the default, or another one that the field accepts. The value of a flag *without effect* is checked and ignored. ` + "`†`" + ` marks deprecated
flags: they work, with the warning of the kubelet.

| Flag | Type | Default in the kubelet | State | Field of KubeletConfiguration | Comment |
|---|---|---|---|---|---|
`

// FLAGS.md has a row for each flag.
func TestFlagsDocument(t *testing.T) {
	var b strings.Builder
	b.WriteString(documentHead)
	for _, f := range kubeletflags.Flags() {
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name += ", `-" + f.Shorthand + "`"
		}
		if f.Deprecated != "" {
			name += " †"
		}
		code := func(text string) string {
			return strings.ReplaceAll("`"+text+"`", "``", "")
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", name, f.Type, code(f.Default), f.State, code(f.Field), cmp.Or(f.Comment, " "))
	}
	if *update {
		require.NoError(t, os.WriteFile("FLAGS.md", []byte(b.String()), 0o644))
	}
	document, err := os.ReadFile("FLAGS.md")
	require.NoError(t, err)
	assert.Equal(t, b.String(), string(document), "run with -update")
}

// Each flag of a field names a field of the kubelet, and the default of a flag is a value that the flag accepts.
func TestFlagsHaveFieldsAndAcceptedDefaults(t *testing.T) {
	fields := kubeletconfig.Fields()
	for _, f := range kubeletflags.Flags() {
		assert.NotEmpty(t, f.State, f.Name)
		if f.Field != "" {
			assert.True(t, slices.ContainsFunc(fields, func(k kubeletconfig.Field) bool {
				return k.Name == f.Field || strings.HasPrefix(k.Name, f.Field+"[].")
			}), f.Name)
		}
		if f.Name == "cpu-manager-policy-options" {
			continue // the kubelet refuses an empty value
		}
		_, err := kubeletflags.Parse([]string{"--" + f.Name + "=" + strings.Trim(f.Default, "[]")})
		assert.NoError(t, err, f.Name)
	}
}
