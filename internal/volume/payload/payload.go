// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/optional"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/atomicwriter"
)

// Files are the files of a volume by their paths.
type Files = map[string]atomicwriter.File

// Inputs are what files are made of, beside the pod, as it was at one moment. What is not in it does not exist.
type Inputs struct {
	ConfigMaps map[string]*corev1.ConfigMap // by name; all are of the pod's namespace
	Secrets    map[string]*corev1.Secret    // likewise

	// What the sources of a projected volume ask for, by their index.
	Tokens       map[int]string
	TrustBundles map[int][]byte // PEM
	Certificates map[int]volume.PodCertificate

	Allocatable corev1.ResourceList // of the node, which a container without a limit can use
}

// Of returns the files of a volume, which is a configMap, a secret, a downwardAPI or a projected one.
func Of(pod *corev1.Pod, v *corev1.Volume, in Inputs) (Files, error) {
	b := &builder{pod: pod, in: in, files: Files{}}
	switch {
	case v.ConfigMap != nil:
		b.mode = v.ConfigMap.DefaultMode
		b.configMap(v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.Optional)
	case v.Secret != nil:
		b.mode = v.Secret.DefaultMode
		b.secret(v.Secret.SecretName, v.Secret.Items, v.Secret.Optional)
	case v.DownwardAPI != nil:
		b.mode = v.DownwardAPI.DefaultMode
		b.downwardAPI(v.DownwardAPI.Items)
	case v.Projected != nil:
		b.mode = v.Projected.DefaultMode
		for i := range v.Projected.Sources {
			b.projected(i, &v.Projected.Sources[i])
		}
	default:
		return nil, errors.New("the volume is not made of files")
	}
	return b.result()
}

// builder collects the files of one volume and what is wrong with them.
type builder struct {
	pod   *corev1.Pod
	in    Inputs
	mode  *int32 // of files that have none of their own
	files Files
	wrong []string
}

func (b *builder) fail(format string, args ...any) {
	b.wrong = append(b.wrong, fmt.Sprintf(format, args...))
}

// put adds a file, in place of one at the same path.
func (b *builder) put(at string, data []byte, mode *int32) {
	b.putOwned(at, data, mode, nil)
}

func (b *builder) putOwned(at string, data []byte, mode *int32, owner *int64) {
	m := *optional.First(optional.First(mode, b.mode), new(corev1.ConfigMapVolumeSourceDefaultMode))
	if m < 0 || m > 0o777 {
		b.fail("file %.256q: mode %#o is not from 0 to 0777", at, m)
		return
	}
	if at != "" { // which Clean would make "."
		at = path.Clean(at)
	}
	b.files[at] = atomicwriter.File{Data: data, Mode: fs.FileMode(m), Owner: owner}
}

// maxWrong is how many faults an error names.
const maxWrong = 10

func (b *builder) result() (Files, error) {
	if n := len(b.wrong); n > maxWrong {
		b.wrong = append(b.wrong[:maxWrong], fmt.Sprintf("and %d more", n-maxWrong))
	}
	if len(b.wrong) > 0 {
		return nil, errors.New(strings.Join(b.wrong, "; "))
	}
	if err := atomicwriter.Validate(b.files); err != nil {
		return nil, err
	}
	return b.files, nil
}
