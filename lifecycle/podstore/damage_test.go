// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podstore_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/costtest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podstore"
)

// encodeFile returns a file of version 1 in the documented format.
func encodeFile(lines string) string {
	const saved = "2026-05-04T03:02:01Z"
	return fmt.Sprintf("nodeagent-pods version=1 saved=%s sha256=%x\n%s", saved, sha256.Sum256([]byte(lines+saved)), lines)
}

const line = `{"source":"s","pod":{"metadata":{"name":"a","namespace":"default","uid":"uid-a"},"spec":{}}}` + "\n"

// podLine returns a line with a pod whose spec has these fields.
func podLine(spec string) string {
	return `{"source":"s","pod":{"metadata":{"name":"a","namespace":"default","uid":"uid-a"},"spec":{` + spec + "}}}\n"
}

// damagedFiles returns the renamed damaged files, the oldest first.
func damagedFiles(t *testing.T, path string) []string {
	t.Helper()
	found, err := filepath.Glob(path + ".corrupt-*")
	require.NoError(t, err)
	return found
}

func TestLoadRenamesDamagedFile(t *testing.T) {
	good := encodeFile(line + line)
	for name, c := range map[string]struct{ content, want string }{
		"empty":                          {"", "it is empty"},
		"zero bytes":                     {strings.Repeat("\x00", 4096), `it begins with "\x00`},
		"file of another format":         {"apiVersion: v1\nkind: Pod\n", `it begins with "apiVersion: v1`},
		"newer version":                  {strings.Replace(good, "version=1 ", "version=2 ", 1), `it has the version "2", want "1"`},
		"older version":                  {strings.Replace(good, "version=1 ", "version=0 ", 1), `it has the version "0", want "1"`},
		"truncated header":               {good[:60], "the first line is cut off"},
		"header alone":                   {strings.SplitAfter(good, "\n")[0], "the checksum does not match"},
		"truncated last line":            {good[:len(good)-2], "the checksum does not match"},
		"a pod is missing":               {strings.TrimSuffix(good, line), "the checksum does not match"},
		"line appended":                  {good + line, "the checksum does not match"},
		"header edited":                  {strings.Replace(good, "saved=2026", "saved=2027", 1), "the checksum does not match"},
		"pod edited":                     {strings.Replace(good, "uid-a", "uid-b", 1), "the checksum does not match"},
		"invalid JSON":                   {encodeFile(line + "x\n"), "line 3: invalid character 'x'"},
		"field of wrong type":            {encodeFile(`{"source":"s","pod":{"spec":[]}}` + "\n"), "line 2: json: cannot unmarshal array"},
		"list with too many elements":    {encodeFile(podLine(`"containers":[{}` + strings.Repeat(",{}", 1000) + "]")), "line 2: pod.spec.containers: a list of more than 1000 elements"},
		"list with too many levels":      {encodeFile(podLine(`"a":` + strings.Repeat("[", 200) + strings.Repeat("]", 200))), "line 2: pod.spec.a[0][0]"},
		"quantity with a large exponent": {encodeFile(line + podLine(`"overhead":{"cpu":"1e30000000"}`)), `line 3: pod.spec.overhead.cpu: quantity "1e30000000": the exponent must be`},
		"limit with a large exponent":    {encodeFile(podLine(`"CONTAINERS":[{"resources":{"limits":{"cpu":1e30000000}}}]`)), `line 2: pod.spec.CONTAINERS[0].resources.limits.cpu: quantity "1e30000000"`},
		"too many values in the file":    {encodeFile(strings.Repeat(podLine(`"containers":[{}`+strings.Repeat(",{}", 900)+"]"), 200)), "line 112: more than 400000 values in the file"},
		"line without a pod":             {encodeFile(line + `{"source":"s"}` + "\n"), "line 3: pod: it is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "pods")
			require.NoError(t, os.WriteFile(path, []byte(c.content), 0o600))
			sets, err := podstore.New(path, podstore.Options{}).Load()
			require.ErrorIs(t, err, podstore.ErrCorrupt)
			assert.Empty(t, sets)
			require.Len(t, damagedFiles(t, path), 1)
			aside := damagedFiles(t, path)[0]
			assert.ErrorContains(t, err, "load pods from "+path+": the file is damaged: "+c.want)
			assert.ErrorContains(t, err, "; it is renamed to "+aside)
			kept, err := os.ReadFile(aside)
			require.NoError(t, err)
			assert.Equal(t, c.content, string(kept))

			assert.Empty(t, load(t, path), "Load finds no file after the rename")
			save(t, path, lifecycle.PodSet{Source: "s", Pods: newPods("new")})
			assert.Equal(t, "new", podNames(load(t, path)[0]))
		})
	}
}

// An agent with an older API than the stored pods runs them without the unknown fields, as with a newer API server.
func TestLoadDropsUnknownFields(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pods")
	newer := strings.Replace(line, `"spec":{}`, `"spec":{"hologram":true,"nodeName":"n"}`, 1)
	require.NoError(t, os.WriteFile(path, []byte(encodeFile(newer)), 0o600))
	sets := load(t, path)
	require.Len(t, sets, 1)
	assert.Equal(t, "a", podNames(sets[0]))
	assert.Equal(t, "n", sets[0].Pods[0].Spec.NodeName)
}

// The newest damaged files are kept, including the current one, even if the clock starts in the past at each boot.
func TestLoadKeepsNewestDamagedFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // starts at midnight of 2000-01-01
		path := filepath.Join(t.TempDir(), "pods")
		for i := range 5 {
			require.NoError(t, os.WriteFile(path, []byte{byte('0' + i)}, 0o600))
			_, err := podstore.New(path, podstore.Options{}).Load()
			require.ErrorIs(t, err, podstore.ErrCorrupt)
			time.Sleep(time.Minute)
		}
		base := path + ".corrupt-20000101T000"
		require.Equal(t, []string{base + "200.000000000Z", base + "300.000000000Z", base + "400.000000000Z"}, damagedFiles(t, path))

		for _, aside := range damagedFiles(t, path) {
			later := filepath.Join(filepath.Dir(aside), strings.Replace(filepath.Base(aside), "2000", "2026", 1))
			require.NoError(t, os.Rename(aside, later))
		}
		require.NoError(t, os.WriteFile(path, []byte("past"), 0o600))
		_, err := podstore.New(path, podstore.Options{}).Load()
		require.ErrorIs(t, err, podstore.ErrCorrupt)
		kept := damagedFiles(t, path)
		require.Len(t, kept, 3)
		content, err := os.ReadFile(kept[0])
		require.NoError(t, err)
		require.Equal(t, "past", string(content))
	})
}

// A file that cannot be read is kept, because its content may be valid.
func TestLoadKeepsUnreadableFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pods")
	require.NoError(t, os.Mkdir(path, 0o700))
	sets, err := podstore.New(path, podstore.Options{}).Load()
	require.ErrorContains(t, err, "load pods from "+path+": it is no regular file")
	require.NotErrorIs(t, err, podstore.ErrCorrupt)
	assert.Empty(t, sets)
	assert.DirExists(t, path)
	assert.Empty(t, damagedFiles(t, path))
}

func TestLoadRemovesTemporaryFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pods")
	save(t, path, lifecycle.PodSet{Source: "s", Pods: newPods("a")})
	half := filepath.Join(filepath.Dir(path), ".pods.123.tmp")
	require.NoError(t, os.WriteFile(half, []byte("half"), 0o600))
	assert.Equal(t, "a", podNames(load(t, path)[0]))
	assert.NoFileExists(t, half)
}

// For any content, Load either returns pods or renames the file.
func FuzzLoad(f *testing.F) {
	for _, content := range []string{"", encodeFile(""), encodeFile(line), encodeFile(line + "{}\n"), encodeFile("null\n"), encodeFile("{\"pod\":{\"spec\":1}}")} {
		f.Add([]byte(content))
	}
	for _, spec := range []string{`"overhead":{"cpu":"1e30000000"}`, `"containers":[{},{},{}]`, `"a":[[[[[]]]]]`} {
		f.Add([]byte(encodeFile(podLine(spec))))
		f.Add([]byte(podLine(spec))) // the fuzz function adds the header with the checksum
	}
	path := filepath.Join(f.TempDir(), "pods")
	f.Fuzz(func(t *testing.T, content []byte) {
		if bytes.HasPrefix(content, []byte("{")) {
			content = []byte(encodeFile(string(content)))
		}
		require.NoError(t, os.WriteFile(path, content, 0o600))
		var sets []lifecycle.PodSet
		var err error
		costtest.Check(t, costtest.Limit{}, func() { // a second run, after an expensive one, finds the file renamed
			sets, err = podstore.New(path, podstore.Options{}).Load()
		})
		if err != nil {
			require.ErrorIs(t, err, podstore.ErrCorrupt)
			require.Empty(t, sets)
			require.NoFileExists(t, path)
			return
		}
		_, lines, _ := bytes.Cut(content, []byte("\n"))
		require.Len(t, content, len(encodeFile(string(lines))), "an accepted file has a valid header")
		for _, set := range sets {
			require.NotEmpty(t, set.Pods)
			require.NotContains(t, set.Pods, nil)
		}
	})
}

// A file with a byte changed, removed or inserted yields no pod.
func FuzzDamage(f *testing.F) {
	for i := range 150 {
		f.Add(uint(i), byte(1<<(i%8)), uint8(i%3))
	}
	path := filepath.Join(f.TempDir(), "pods")
	good := []byte(encodeFile(line + line))
	f.Fuzz(func(t *testing.T, at uint, change byte, how uint8) {
		at %= uint(len(good))
		damaged := bytes.Clone(good)
		switch how % 3 {
		case 0:
			damaged[at] ^= change
		case 1:
			damaged = damaged[:at]
		case 2:
			damaged = append(append(damaged[:at:at], change), good[at:]...)
		}
		require.NoError(t, os.WriteFile(path, damaged, 0o600))
		sets, err := podstore.New(path, podstore.Options{}).Load()
		if bytes.Equal(damaged, good) {
			require.NoError(t, err)
			return
		}
		require.ErrorIs(t, err, podstore.ErrCorrupt)
		require.Empty(t, sets)
	})
}
