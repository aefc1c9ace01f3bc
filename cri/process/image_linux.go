// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"os"
	"path"
	"strings"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// nominalSize is the size of every image: clients of the CRI take an image without a size for a broken answer.
const nominalSize = 1

// image is a name as an image. Its user is the agent's: what states no user runs as that one.
func image(s cri.ImageSpec) cri.Image {
	uid := int64(os.Geteuid())
	i := cri.Image{ID: s.Image, Size: nominalSize, UID: &uid, Spec: s, Pinned: true}
	switch {
	case strings.Contains(s.Image, "@"):
		i.RepoDigests = []string{s.Image}
	case strings.Contains(path.Base(s.Image), ":"): // a colon before that is of a port
		i.RepoTags = []string{s.Image}
	default: // clients of the CRI, such as crictl, take a name without a tag for a broken one
		i.RepoTags = []string{s.Image + ":latest"}
	}
	return i
}

// ListImages returns the names that containers were created with, each as an image.
func (r *Runtime) ListImages(ctx context.Context) ([]cri.Image, error) {
	snapshot, err := r.snapshot(ctx, func(string) bool { return true })
	if err != nil {
		return nil, fail("ListImages", "", err)
	}
	var images []cri.Image
	seen := make(map[string]bool)
	for _, c := range snapshot.Containers {
		if name := c.Image.Image; name != "" && !seen[name] {
			seen[name] = true
			images = append(images, image(c.Image))
		}
	}
	return images, nil
}

// ImageStatus returns an image for every name: nothing is ever missing.
func (r *Runtime) ImageStatus(_ context.Context, s cri.ImageSpec) (cri.Image, error) {
	if s.Image == "" {
		return cri.Image{}, fail("ImageStatus", "", cri.ErrNotFound)
	}
	return image(s), nil
}

// PullImage fetches nothing and returns the name.
func (r *Runtime) PullImage(_ context.Context, i cri.ImageSpec, _ *cri.Auth, _ *cri.SandboxConfig) (string, error) {
	return i.Image, nil
}

// RemoveImage does nothing: there is nothing to remove.
func (r *Runtime) RemoveImage(context.Context, cri.ImageSpec) error { return nil }

// ImageUsage returns the file system of the state directory, with nothing on it.
func (r *Runtime) ImageUsage(context.Context) (cri.ImageUsage, error) {
	var none uint64
	usage := cri.FilesystemUsage{Time: time.Now(), Mountpoint: r.root, UsedBytes: &none, InodesUsed: &none}
	return cri.ImageUsage{Images: []cri.FilesystemUsage{usage}}, nil
}
