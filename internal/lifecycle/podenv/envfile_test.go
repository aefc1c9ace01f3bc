// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podenv_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/costtest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podenv"
	"github.com/seed81659283/nodeagent/internal/podtest"
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
		got, err := podenv.ParseEnvFile([]byte(in), "A")
		if err != nil {
			got = err.Error()
		}
		assert.Equal(t, want, got, "%.40q", in)
	}
}

// An environment file is parsed once for all variables of a container. Otherwise a thousand variables would copy a gigabyte.
func TestEnvFileParsedOncePerContainer(t *testing.T) {
	data := []byte(strings.Repeat("FILL='"+strings.Repeat("x", 1000)+"'\n", 1000) + "A='a'\nA='again'\nB='b'\nbroken\nC='c'\n")
	p := podtest.Pod(t)
	ref := func(key string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{VolumeName: "v", Path: "vars", Key: key, Optional: new(bool)}}
	}
	one := &p.Spec.Containers[0]
	for i := range 1000 {
		one.Env = append(one.Env, corev1.EnvVar{Name: fmt.Sprintf("V%d", i), ValueFrom: ref("AB"[i%2 : i%2+1])})
	}
	s := podenv.Sources{
		Volumes:    map[string]string{"v": "/v"},
		References: podenv.References{EnvFiles: map[podenv.EnvFile][]byte{{Volume: "v", Path: "vars"}: data}},
	}
	costtest.Check(t, costtest.Limit{Bytes: 8 << 20}, func() {
		env := environment(t, p, s)
		require.Len(t, env, 1000)
		assert.Equal(t, "b", env[999].Value)
		assert.Equal(t, "a", env[998].Value)
	})

	one.Env = append(one.Env, corev1.EnvVar{Name: "LAST", ValueFrom: ref("C")})
	_, err := podenv.New(p, one, s)
	assert.EqualError(t, err, `spec.containers[0].env[1000].valueFrom.fileKeyRef.path: Invalid value: "vars": line 1004: no equals sign`)
}

// The total size of the environment files of a container is limited, which bounds the memory of the agent.
func TestEnvFilesLimitedInTotal(t *testing.T) {
	dir, p := t.TempDir(), podtest.Pod(t)
	one := &p.Spec.Containers[0]
	for i := range 5 {
		name := fmt.Sprint(i)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), make([]byte, 1<<20), 0o600))
		one.Env = append(one.Env, corev1.EnvVar{Name: "V" + name, ValueFrom: &corev1.EnvVarSource{
			FileKeyRef: &corev1.FileKeySelector{VolumeName: "v", Path: name, Key: "K"},
		}})
	}
	_, err := podenv.Resolve(t.Context(), p, one, nil, map[string]string{"v": dir})
	assert.EqualError(t, err, "spec.containers[0].env[4].valueFrom: "+
		"file 4 of volume v: want at most 4194304 bytes in all files that the container takes variables from")
}

func FuzzParseEnvFile(f *testing.F) {
	f.Add("A='1'\n", "A", "2")
	f.Add("B='x\ny' # z", "A", "1\n2")
	f.Fuzz(func(t *testing.T, before, name, value string) {
		var err error
		data := []byte(before)
		costtest.Check(t, costtest.Limit{Bytes: 1<<20 + 8*uint64(len(data))}, func() { _, err = podenv.ParseEnvFile(data, name) })
		if err != nil {
			return
		}
		if strings.ContainsAny(name, " \t\r\n=#'") || name == "" || strings.ContainsAny(value, "'\r") || len(value) > 1000 || len(name) > 1000 {
			return
		}
		file := before + "\n" + name + "='" + value + "'\n"
		got, err := podenv.ParseEnvFile([]byte(file), name)
		require.NoError(t, err)
		if first, _ := podenv.ParseEnvFile([]byte(before), name); first != "" {
			value = first
		}
		if got != "" {
			assert.Equal(t, value, got)
		}
	})
}
