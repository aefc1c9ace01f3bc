// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/mount"
	"github.com/seed81659283/nodeagent/internal/nowait"
	"github.com/seed81659283/nodeagent/internal/projquota"
	"github.com/seed81659283/nodeagent/internal/volume/token"
	"github.com/seed81659283/nodeagent/internal/volume/trustbundle"
	"github.com/seed81659283/nodeagent/volume"
)

// Objects is where the objects are that volumes show. An object that does not exist is an error that wraps fs.ErrNotExist; any
// other error is that it cannot be known. Package objects has some.
type Objects interface {
	// ConfigMap returns a config map, which is not changed.
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	// Secret returns a secret with all of it in Data, which is not changed.
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

// Certificates provides the certificates of pods. A [*CertificateKeeper] implements it. One that also has a method Forget(podUID string) is
// called when the projected volume of a pod is torn down.
type Certificates interface {
	// Certificate returns the certificate for the source of a projected volume with that index.
	Certificate(ctx context.Context, pod *corev1.Pod, volume string, source int) (volume.PodCertificate, error)
}

// forgetter is implemented by [Certificates] that keep certificates.
type forgetter interface {
	// Forget drops the certificates of a pod whose projected volume is torn down.
	Forget(podUID string)
}

// Options name the sources of the contents of volumes. A pod that needs a source which is nil is refused.
type Options struct {
	Objects      Objects                  // nil: config maps and secrets are refused
	Tokens       volume.TokenIssuer       // nil: service account tokens are refused
	TrustBundles volume.TrustBundleLister // nil: cluster trust bundles are refused
	Certificates Certificates             // nil: pod certificates are refused
	// Allocatable returns the resources that the node has for pods. The memory of a tmpfs is bounded by it, and it stands for
	// limits that containers do not have. Nil: they are not known.
	Allocatable func() corev1.ResourceList
}

// node is what the plugins share.
type node struct {
	options   Options
	unmounter mount.Unmounter
	binds     mount.Unmounter // of what others use, too
	calls     nowait.Calls    // about file systems that may not answer
	projects  projquota.Projects
}

func (n *node) allocatable() corev1.ResourceList {
	if n.options.Allocatable == nil {
		return nil
	}
	return n.options.Allocatable()
}

// Plugins returns the plugins by their names.
func Plugins(o Options) map[string]volume.Plugin {
	n := &node{options: o}
	n.binds.NoForce = true
	files := func(memory bool) *written { return &written{node: n, memory: memory} }
	projected := files(true)
	if o.Tokens != nil {
		projected.tokens = token.NewCache(o.Tokens, nil)
	}
	if o.TrustBundles != nil {
		projected.bundles = trustbundle.NewReader(o.TrustBundles)
	}
	return map[string]volume.Plugin{
		volume.EmptyDir:    &emptyDir{n},
		volume.HostPath:    &hostPath{n},
		volume.ConfigMap:   files(false),
		volume.Secret:      files(true),
		volume.DownwardAPI: files(true),
		volume.Projected:   projected,
		volume.Local:       &local{n},
		volume.NFS:         &nfs{n},
		volume.GitRepo:     gitRepo{},
	}
}

var (
	_ volume.Plugin    = (*emptyDir)(nil)
	_ volume.Usager    = (*emptyDir)(nil)
	_ volume.Plugin    = gitRepo{}
	_ volume.Plugin    = (*hostPath)(nil)
	_ volume.Checker   = (*hostPath)(nil)
	_ volume.Plugin    = (*written)(nil)
	_ volume.Checker   = (*written)(nil)
	_ volume.Refresher = (*written)(nil)
	_ volume.Usager    = (*written)(nil)
)
