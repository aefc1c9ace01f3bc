// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

func TestParseEnvFile(t *testing.T) {
	long := strings.Repeat("x", 64<<10)
	for in, want := range map[string]string{
		"":                          "",
		"A='1'":                     "1",
		"A='1'\nA='2'\n":            "1",
		"\n \t\n# A='0'\n  A='1'\n": "1",
		"B='2'\nA='1' # why\n":      "1",
		"A='1' \t":                  "1",
		"A='1'#x":                   "1",
		"A='$(B) \"\\n'":            "$(B) \"\\n",
		"A='one\ntwo\r\n# three'":   "one\ntwo\n# three",
		"A='x\n'":                   "x\n",
		"A= '1'\nA='2'":             "",
		"A=\t1":                     "",
		"B= anything\nA='1'":        "1",
		"a b='1'\nA='2'":            "2",
		"A='1'\nnonsense":           "1",
		"B='A=1'":                   "",
		"A":                         "line 1: no equals sign",
		"\n='1'":                    "line 2: no name",
		"A ='1'":                    "line 1: blanks before the equals sign",
		"A=1":                       "line 1: no single quote around the value",
		"A=":                        "line 1: no single quote around the value",
		`A="1"`:                     "line 1: no single quote around the value",
		"A='1''2'":                  "line 1: more after the closing quote",
		"\n\nA='1\n2":               "line 3: no closing quote",
		"B='" + long + "'":          "line 1: more than 65535 bytes",
		"B='\n" + long + "'":        "line 2: more than 65535 bytes",
	} {
		got, err := podspec.ParseEnvFile([]byte(in), "A")
		if err != nil {
			got = err.Error()
		}
		assert.Equal(t, want, got, "%.40q", in)
	}
}

// What is written by the rules is read as it was meant.
func FuzzParseEnvFile(f *testing.F) {
	f.Add("A='1'\n", "A", "2")
	f.Add("B='x\ny' # z", "A", "1\n2")
	f.Fuzz(func(t *testing.T, before, name, value string) {
		if _, err := podspec.ParseEnvFile([]byte(before), name); err != nil {
			return
		}
		if strings.ContainsAny(name, " \t\r\n=#'") || name == "" || strings.ContainsAny(value, "'\r") || len(value) > 1000 || len(name) > 1000 {
			return
		}
		file := before + "\n" + name + "='" + value + "'\n"
		got, err := podspec.ParseEnvFile([]byte(file), name)
		require.NoError(t, err)
		if first, _ := podspec.ParseEnvFile([]byte(before), name); first != "" {
			value = first
		}
		if got != "" {
			assert.Equal(t, value, got)
		}
	})
}
