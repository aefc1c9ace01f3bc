// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package expand_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/costtest"
	"github.com/seed81659283/nodeagent/internal/expand"
)

func TestStringExpandsReferences(t *testing.T) {
	env := map[string]string{"A": "1", "E": "", "REF": "$(A)", "a b": "space"}
	for in, want := range map[string]string{
		"":                      "",
		"$":                     "$",
		"x$":                    "x$",
		"$(A)-$$(A)-$(MISSING)": "1-$(A)-$(MISSING)",
		"$$$(A)":                "$1",
		"$$$$(A)":               "$$(A)",
		"$(E)":                  "",
		"$(REF)":                "$(A)",
		"$(A":                   "$(A",
		"$($(A)":                "$($(A)",
		"$(A$(A)":               "$(A$(A)",
		"$(":                    "$(",
		"$()":                   "$()",
		"$(a b)":                "space",
		"$A $ $é":               "$A $ $é",
		"foo$$(foo)$(A)$(A)":    "foo$(foo)11",
		"$(((((A))))":           "$(((((A))))",
	} {
		got, ok := expand.String(in, expand.MaxArgument-1, func(n string) (string, bool) { v, ok := env[n]; return v, ok })
		require.True(t, ok, in)
		assert.Equal(t, want, got, in)
	}
}

// A string with many unclosed references is read once, not once per reference.
func TestStringReadsUnclosedReferencesOnce(t *testing.T) {
	s := strings.Repeat("$(", 1<<20)
	costtest.Check(t, costtest.Limit{Bytes: 1 << 20}, func() {
		_, ok := expand.String(s, expand.MaxArgument-1, func(string) (string, bool) { return "", false })
		assert.False(t, ok)
	})
	env := map[string]string{strings.Repeat("$(", 1<<15): "v"}
	lookup := func(n string) (string, bool) { v, ok := env[n]; return v, ok }
	got, ok := expand.String("$("+strings.Repeat("$(", 1<<15)+")$(", expand.MaxArgument-1, lookup)
	require.True(t, ok)
	assert.Equal(t, "v$(", got)
}

func FuzzExpand(f *testing.F) {
	f.Add("$(A)-$$(A)-$(MISSING)$(", "v")
	f.Fuzz(func(t *testing.T, s, value string) {
		all := func(string) (string, bool) { return value, true }
		none := func(string) (string, bool) { return "", false }
		replace := func(s string, env expand.Lookup) (got string) {
			var ok bool
			costtest.Check(t, costtest.Limit{Bytes: 16 << 20}, func() { got, ok = expand.String(s, expand.MaxArgument-1, env) })
			if !ok && got != "" {
				t.Fatal("a failed expansion returns text")
			}
			return got
		}
		if len(replace(s, all)) >= expand.MaxArgument {
			t.Fatal("the result exceeds the limit")
		}
		if len(s) >= expand.MaxArgument {
			return
		}
		if !strings.Contains(s, "$") {
			assert.Equal(t, s, replace(s, all))
		}
		// An escaped string expands to the original.
		assert.Equal(t, s, replace(strings.ReplaceAll(s, "$", "$$"), all))
		// Unknown references are kept. Only escapes become shorter.
		assert.LessOrEqual(t, len(replace(s, none)), len(s))
		if !strings.Contains(s, "$$") {
			assert.Equal(t, s, replace(s, none))
		}
	})
}

// The words of a command share one size limit, and the error names the first word that exceeds it.
func TestCommandLimitsTotalSize(t *testing.T) {
	big := strings.Repeat("x", expand.MaxArgument/2)
	env := func(name string) (string, bool) { return big, name == "BIG" }
	for _, test := range []struct {
		words []string
		want  string
	}{
		{nil, ""},
		{[]string{"a", "$(BIG)", "$(X)"}, ""},
		{[]string{"a", "$(BIG)$(BIG)"}, "command[1]: Too long: may not be more than 131071 bytes once it is expanded"},
		{slices.Repeat([]string{"$(BIG)"}, 31), ""},
		{slices.Repeat([]string{"$(BIG)"}, 32), "command[31]: Too long: arguments and environment may not be more than 2097152 bytes in all"},
	} {
		got, err := expand.Command(test.words, field.NewPath("command"), env)
		if test.want != "" {
			assert.EqualError(t, err, test.want)
			continue
		}
		require.NoError(t, err)
		assert.Len(t, got, len(test.words))
	}
	got, err := expand.Command([]string{}, nil, env)
	require.NoError(t, err)
	assert.Nil(t, got)
}
