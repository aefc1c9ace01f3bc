// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
)

var update = flag.Bool("update", false, "write FIELDS.md, and the errors in testdata/broken.txtar")

// loadAndValidate loads files and checks them like an agent that starts.
func loadAndValidate(path, dir string) (kubeletconfig.Documents, error) {
	d, err := kubeletconfig.LoadDir(path, dir)
	if err == nil {
		if err = d.SetDefaults(); err == nil {
			err = d.Validate()
		}
	}
	return d, err
}

// Each broken file is refused with an error that has the file, the field and the value.
func TestBrokenFilesAreRefusedByFileAndField(t *testing.T) {
	const path = "testdata/broken.txtar"
	archive, err := txtar.ParseFile(path)
	require.NoError(t, err)
	dir := t.TempDir()
	for i := 0; i < len(archive.Files); i += 2 {
		file, want := archive.Files[i], &archive.Files[i+1]
		require.NoError(t, os.WriteFile(filepath.Join(dir, file.Name), file.Data, 0o600))
		_, err := loadAndValidate(filepath.Join(dir, file.Name), "")
		require.Error(t, err, file.Name)
		got := strings.ReplaceAll(err.Error(), dir+"/", "") + "\n"
		if *update {
			want.Data = []byte(got)
		}
		assert.Equal(t, string(want.Data), got, file.Name)
		for line := range strings.Lines(got) {
			if !strings.HasPrefix(line, "  ") { // lines of the YAML parser
				assert.True(t, strings.HasPrefix(line, file.Name+": "), line)
			}
		}
	}
	assert.GreaterOrEqual(t, len(archive.Files)/2, 40)
	if *update {
		require.NoError(t, os.WriteFile(path, txtar.Format(archive), 0o600))
	}
}

// The files that kubeadm, kind and the test clusters of Kubernetes write are accepted. kubeadm passes kubeconfig and node name as flags.
func TestKnownFilesAreAccepted(t *testing.T) {
	paths, err := filepath.Glob("testdata/known/*.yaml")
	require.NoError(t, err)
	require.Len(t, paths, 7)
	for _, path := range paths {
		d, err := kubeletconfig.Load(path)
		require.NoError(t, err)
		d.Node.Kubeconfig = "/etc/kubernetes/kubelet.conf"
		if d.Kubelet.ContainerRuntimeEndpoint == "" {
			d.Kubelet.ContainerRuntimeEndpoint = "unix:///run/containerd/containerd.sock"
		}
		require.NoError(t, d.SetDefaults(), path)
		require.NoError(t, d.Validate(), path)
	}
}

// The table of fields and gates in FIELDS.md is that of the Go data.
func TestFields(t *testing.T) {
	var page strings.Builder
	page.WriteString(fieldsIntroduction)
	var c kubeletconfig.Configuration
	c.SetDefaults(kubeletconfig.Defaults{Cluster: true, RemoteRuntime: true})
	text, err := json.Marshal(c)
	require.NoError(t, err)
	defaults := map[string]any{}
	require.NoError(t, json.Unmarshal(text, &defaults))
	for _, f := range kubeletconfig.Fields() {
		values := ""
		if f.State == kubeletconfig.DefaultOnly {
			values = "empty"
		}
		if len(f.Accept) > 0 {
			values = "`" + strings.Join(f.Accept, "` or `") + "`"
		}
		if f.State == kubeletconfig.Supported {
			values = defaultOf(defaults, f.Name)
		}
		fmt.Fprintf(&page, "| %s | %s | %s | %s |\n", f.Name, f.State, values, f.Comment)
	}
	page.WriteString(gatesIntroduction)
	for _, g := range kubeletconfig.Gates() {
		locked := ""
		if g.Locked {
			locked = ", locked"
		}
		fmt.Fprintf(&page, "| %s | %s | %t%s | %s |\n", g.Name, g.Stage, g.Default, locked, g.State)
	}
	if *update {
		require.NoError(t, os.WriteFile("FIELDS.md", []byte(page.String()), 0o600))
	}
	file, err := os.ReadFile("FIELDS.md")
	require.NoError(t, err)
	require.Equal(t, page.String(), string(file), "run go test -run TestFields -update")
}

const fieldsIntroduction = `# Fields and gates of the kubelet

Generated from the Go data of this package; do not edit. The fields are those of KubeletConfiguration v1beta1 in Kubernetes 1.37.

- supported: the field has the effect that it has in the kubelet. The third column has the default.
- default only: another value than those in the third column is an error. A missing value is always accepted, and so is an empty one where the
  kubelet takes it for a missing one.
- without effect: each value that the kubelet accepts is accepted and ignored.

| Field | State | Values | Comment |
|---|---|---|---|
`

const gatesIntroduction = `
## Feature gates

- supported: true and the default are accepted.
- default only: only the default is accepted. The kubelet does not accept another value for a locked gate, either.
- without effect: true and false are accepted.

AllAlpha and AllBeta are accepted if each gate that they set may have the value.

| Gate | Stage | Default | State |
|---|---|---|---|
`

// defaultOf returns the default of a field in JSON, or "" if it is empty.
func defaultOf(defaults map[string]any, name string) string {
	var value any = defaults
	for part := range strings.SplitSeq(name, ".") {
		fields, _ := value.(map[string]any)
		value = fields[part]
	}
	if value == nil || reflect.ValueOf(value).IsZero() && value != false {
		return ""
	}
	text, _ := json.Marshal(value)
	return "`" + string(text) + "`"
}
