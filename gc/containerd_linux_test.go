// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gc_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/remote"
	"github.com/seed81659283/nodeagent/gc"
	"github.com/seed81659283/nodeagent/internal/gctest"
	"github.com/seed81659283/nodeagent/internal/lab"
)

// writeImageArchive writes an image with one file of random bytes in the format of docker save, and returns its path.
func writeImageArchive(t *testing.T, name string, size uint64) string {
	content := make([]byte, size)
	rand.Read(content)
	var layer bytes.Buffer
	add := func(w *tar.Writer, name string, data []byte) {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))}))
		_, err := w.Write(data)
		require.NoError(t, err)
	}
	w := tar.NewWriter(&layer)
	add(w, "data", content)
	require.NoError(t, w.Close())
	sum := sha256.Sum256(layer.Bytes())
	config, err := json.Marshal(map[string]any{
		"architecture": "amd64", "os": "linux", "config": map[string]any{"Cmd": []string{"/data"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	require.NoError(t, err)
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	require.NoError(t, err)

	path := filepath.Join(t.TempDir(), "image.tar")
	f, err := os.Create(path)
	require.NoError(t, err)
	out := tar.NewWriter(f)
	add(out, "manifest.json", manifest)
	add(out, "config.json", config)
	add(out, "layer.tar", layer.Bytes())
	require.NoError(t, out.Close())
	require.NoError(t, f.Close())
	return path
}

// containerd is a private containerd instance with a client.
type containerd struct {
	*remote.Client
	lab *lab.Lab
}

func newContainerd(t *testing.T) *containerd {
	l := lab.StartPrivate(t)
	client, err := remote.Dial(l.Endpoint(), remote.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return &containerd{Client: client, lab: l}
}

// importImage imports an image of the given size, and returns its ID when the runtime lists it.
func (c *containerd) importImage(t *testing.T, name string, size uint64) string {
	ref := "nodeagent.test/" + name + ":1"
	out, err := exec.CommandContext(t.Context(), filepath.Join(c.lab.BinDir(), "ctr"), "--address", strings.TrimPrefix(c.lab.Endpoint(), "unix://"),
		"--namespace", "k8s.io", "images", "import", writeImageArchive(t, ref, size)).CombinedOutput()
	require.NoError(t, err, string(out))
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(20 * time.Millisecond) {
		if image, err := c.ImageStatus(t.Context(), cri.ImageSpec{Image: ref}); err == nil {
			return image.ID
		}
	}
	require.Fail(t, "the runtime does not list the imported image")
	return ""
}

// measureDisk measures the bytes that the runtime uses, so that writes of other programs do not count.
func (c *containerd) measureDisk(context.Context) (gc.Disk, error) {
	const capacity = 1 << 40
	var used int64
	err := filepath.WalkDir(c.lab.Dir(), func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it was removed meanwhile
		}
		if info, err := e.Info(); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				used += st.Blocks * 512
			}
		}
		return nil
	})
	return gc.Disk{Capacity: capacity, Available: capacity - uint64(used)}, err
}

// pulls is a Puller that has a pull record for every image, permits every claim and prunes nothing.
type pulls struct{}

func (pulls) Claim(cri.Image, time.Time) (release func(), ok bool) { return func() {}, true }
func (pulls) HasPullRecord(string) bool                            { return true }
func (pulls) Prune([]cri.Image, time.Time) error                   { return nil }

// TestIntegrationSuite runs the suite of ImageGC on a real containerd. An image occupies twice its size there: packed and
// unpacked.
func TestIntegrationSuite(t *testing.T) {
	gctest.TestImageGC(t, func(t *testing.T) gctest.Subject {
		c := newContainerd(t)
		given := []string{lab.BusyboxImage, lab.PauseImage}
		g, err := gc.NewImages(c, c, gc.ImageOptions{
			Policy: &gc.ImagePolicy{}, Puller: pulls{}, Disk: c.measureDisk, PodImages: func() []string { return given },
		})
		require.NoError(t, err)
		return gctest.Subject{
			Collector: g, ImageSize: 2 << 20,
			AddImage:     func(t *testing.T, name string, bytes uint64) string { return c.importImage(t, name, bytes/2) },
			AddContainer: func(t *testing.T, id string) { c.createContainer(t, id) },
			ImageIDs: func(t *testing.T) (ids []string) {
				list, err := c.ListImages(t.Context())
				require.NoError(t, err)
				for _, i := range list {
					ids = append(ids, i.ID)
				}
				return ids
			},
		}
	})
}

// createContainer creates a container of the image with this ID, but does not start it.
func (c *containerd) createContainer(t *testing.T, id string) {
	config := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "u", Name: "p", Namespace: "ns"}}
	config.Security.Namespaces.Network = cri.NamespaceNode
	sandbox, err := c.RunSandbox(t.Context(), config)
	require.NoError(t, err)
	_, err = c.CreateContainer(t.Context(), sandbox, &cri.ContainerConfig{Name: "c", Image: cri.ImageSpec{Image: id}}, config)
	require.NoError(t, err)
}

// An imported image has no digest in containerd, and stays without a pull record. The sandbox image is pinned. Without
// Options.Disk, the collector finds the image file system.
func TestIntegrationImportedImageStays(t *testing.T) {
	c := newContainerd(t)
	id := c.importImage(t, "imported", 1<<20)
	image, err := c.ImageStatus(t.Context(), cri.ImageSpec{Image: id})
	require.NoError(t, err)
	require.Empty(t, image.RepoDigests, "an imported image has tags only")
	g, err := gc.NewImages(c, c, gc.ImageOptions{Policy: &gc.ImagePolicy{}})
	require.NoError(t, err)
	plan, disk, err := g.Plan(t.Context())
	require.NoError(t, err)
	require.NotZero(t, disk.Capacity)
	why := map[string]gc.KeepReason{}
	for _, k := range plan.Kept {
		why[fmt.Sprint(k.Names)] = k.Reason
	}
	require.Equal(t, gc.KeepImported, why["[nodeagent.test/imported:1]"], why)
	require.Equal(t, gc.KeepPinned, why["["+lab.PauseImage+"]"], why)
	_, err = g.Reclaim(t.Context(), gc.ReclaimAll)
	require.NoError(t, err)
	_, err = c.ImageStatus(t.Context(), cri.ImageSpec{Image: id})
	require.NoError(t, err)
}
