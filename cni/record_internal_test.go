// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/script"
)

func TestRecordDir(t *testing.T) {
	s := recordDir{t.TempDir()}
	n, err := ParseNetwork([]byte(`{"name":"n","cniVersion":"1.0.0","plugins":[{"type":"a","token":"<secret>"}]}`))
	require.NoError(t, err)
	pod := Pod{SandboxID: "id", Namespace: "default", Name: "web", UID: "u", Annotations: map[string]string{AnnotationIngressBandwidth: "1P"}}
	r, err := newRecord(pod, []*Network{n, n})
	require.NoError(t, err)
	require.NoError(t, s.writeRecord(r))
	info, err := os.Stat(s.recordPath("id"))
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm(), "only the owner may read records, because configurations contain secrets")

	got, err := s.readRecord("id")
	require.NoError(t, err)
	all, err := got.parseAttachments("/netns")
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, "eth1", all[1].attachment.Interface)
	require.JSONEq(t, string(n.configJSON()), string(all[0].network.configJSON()))
	require.Equal(t, [][2]string{
		{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", "web"}, {"K8S_POD_INFRA_CONTAINER_ID", "id"}, {"K8S_POD_UID", "u"},
	}, all[0].attachment.Args)
	require.JSONEq(t, `{"ingressRate":1000000000000000,"ingressBurst":4294967295}`, string(all[0].attachment.Capabilities[CapBandwidth]))

	require.NoError(t, os.WriteFile(filepath.Join(s.dir, ".id.json.123.tmp"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "other"), nil, 0o600))
	require.NoError(t, s.removeTemporary())
	require.NoFileExists(t, filepath.Join(s.dir, ".id.json.123.tmp"))
	ids, err := s.listSandboxes()
	require.NoError(t, err)
	require.Equal(t, []string{"id"}, ids)
	require.NoError(t, s.removeRecord("id"))
	require.NoError(t, s.removeRecord("id"), "again")
	_, err = s.readRecord("id")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestNewRecordRejectsInvalidPods(t *testing.T) {
	for want, pod := range map[string]Pod{
		`sandbox ID "" must have up to 128`:      {},
		`sandbox ID "../x" must have up to 128`:  {SandboxID: "../x"},
		`CNI_ARGS: K8S_POD_NAME: "a;b=c" has a`:  {SandboxID: "x", Name: "a;b=c"},
		`ports[0].hostPort: -1 must be 0 to 655`: {SandboxID: "x", Ports: []PortMapping{{HostPort: -1}}},
	} {
		_, err := newRecord(pod, nil)
		assert.ErrorContains(t, err, want)
	}
}

func TestReadRecordReportsDamage(t *testing.T) {
	s := recordDir{t.TempDir()}
	for name, content := range map[string]string{
		"empty": "", "half": `{"kind":"nodeagent.cni/v1","sandb`, "another kind": `{"kind":"x","sandbox":"id"}`,
		"of another":            `{"kind":"nodeagent.cni/v1","sandbox":"other"}`,
		"invalid configuration": `{"kind":"nodeagent.cni/v1","sandbox":"id","attachments":[{"network":"n","interface":"eth0","config":{}}]}`,
		"another network":       `{"kind":"nodeagent.cni/v1","sandbox":"id","attachments":[{"network":"m","interface":"eth0","config":{"name":"n","plugins":[{"type":"a"}]}}]}`,
		"a path":                `{"kind":"nodeagent.cni/v1","sandbox":"id","attachments":[{"network":"n","interface":"../x","config":{"name":"n","plugins":[{"type":"a"}]}}]}`,
		"too large":             strings.Repeat(" ", maxRecord+1),
	} {
		require.NoError(t, os.WriteFile(s.recordPath("id"), []byte(content), 0o600))
		_, err := s.readRecord("id")
		_, damaged := errors.AsType[*damagedError](err)
		require.True(t, damaged, "%s: %v", name, err)
		require.ErrorContains(t, err, s.recordPath("id"))
	}
	_, err := s.readRecord("../id")
	require.ErrorContains(t, err, "sandbox ID")
}

// A parsed record can be used, and its encoding is the input.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"kind":"nodeagent.cni/v1","sandbox":"id","attachments":[{"network":"n","interface":"eth0","config":{"name":"n","plugins":[{"type":"a"}]},"args":[["a","b"]],"capabilities":{"x":[1]}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parseRecord(data, "id")
		if err != nil {
			return
		}
		data, err = json.Marshal(r)
		require.NoError(t, err)
		again, err := parseRecord(data, "id")
		require.NoError(t, err)
		require.Len(t, again.Attachments, len(r.Attachments))
	})
}

// TestRetainScripts runs testdata/retain/*.txt: what is there of sandboxes, and below "retain", with the sandboxes that are
// valid, those whose network is torn down. Lines:
//
//	recorded ID...   have a record
//	cached ID...     are in libcni's cache
//	pinned ID...     have a network namespace
//	mine ID...       were set up by this agent, or are being set up
func TestRetainScripts(t *testing.T) {
	script.Run(t, "testdata/retain/*.txt", func(t *testing.T, text string) string {
		var h sandboxSets
		return script.Lines(text, "  ", func(out *strings.Builder, words []string) {
			switch words[0] {
			case "recorded":
				h.recorded = words[1:]
			case "cached":
				h.cached = words[1:]
			case "pinned":
				h.pinned = words[1:]
			case "mine":
				h.own = words[1:]
			case "retain":
				left := h.orphans(words[1:])
				if len(left) == 0 {
					left = []string{"nothing"}
				}
				out.WriteString("  tear down " + strings.Join(left, " ") + "\n")
			default:
				t.Fatalf("unknown line %q", words)
			}
		})
	})
}
