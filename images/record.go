// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/seed81659283/nodeagent/images/credential"
)

// The types below are those of k8s.io/kubelet/config/v1beta1, as the kubelet writes them to its files. v1alpha1 is the
// same and is read too.
const (
	recordVersion    = "kubelet.config.k8s.io/v1beta1"
	recordVersionOld = "kubelet.config.k8s.io/v1alpha1"
	intentKind       = "ImagePullIntent"
	pulledKind       = "ImagePulledRecord"
)

type typeMeta struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
}

// intent says that a pull has begun. It is gone when the pull has failed, or a pulledRecord has been written.
type intent struct {
	typeMeta
	Image string `json:"image"` // as it stands in the container
}

// pulledRecord says what an image was pulled with.
type pulledRecord struct {
	typeMeta
	LastUpdatedTime   time.Time                      `json:"lastUpdatedTime"`
	ImageRef          string                         `json:"imageRef"` // the image's ID
	CredentialMapping map[string]recordedCredentials `json:"credentialMapping,omitempty"`
}

// recordedCredentials are for one name of the image, as it stands in containers, without tag and digest.
type recordedCredentials struct {
	KubernetesSecrets         []recordedSecret `json:"kubernetesSecrets,omitempty"`
	KubernetesServiceAccounts []recordedObject `json:"kubernetesServiceAccounts,omitempty"`
	NodePodsAccessible        bool             `json:"nodePodsAccessible,omitempty"` // by every pod
}

type recordedSecret struct {
	recordedObject
	CredentialHash string `json:"credentialHash"`
}

type recordedObject struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

func (o recordedObject) compare(p recordedObject) int {
	return cmp.Or(cmp.Compare(o.Namespace, p.Namespace), cmp.Compare(o.Name, p.Name), cmp.Compare(o.UID, p.UID))
}

// record returns what to write down about a pull with a credential, or without one.
func record(used *credential.Credential) recordedCredentials {
	if used != nil {
		object := recordedObject(used.Source.Object)
		switch used.Source.Kind {
		case credential.FromSecret:
			return recordedCredentials{KubernetesSecrets: []recordedSecret{{object, used.Hash()}}}
		case credential.FromServiceAccount:
			return recordedCredentials{KubernetesServiceAccounts: []recordedObject{object}}
		}
	}
	return recordedCredentials{NodePodsAccessible: true}
}

// merge returns the union of two: secrets by their coordinates, the hash being that of add. What every pod may have
// needs no more said.
func (c recordedCredentials) merge(add recordedCredentials) recordedCredentials {
	if c.NodePodsAccessible || add.NodePodsAccessible {
		return recordedCredentials{NodePodsAccessible: true}
	}
	hashes := map[recordedObject]string{}
	for _, s := range slices.Concat(c.KubernetesSecrets, add.KubernetesSecrets) {
		hashes[s.recordedObject] = s.CredentialHash
	}
	var u recordedCredentials
	for _, o := range slices.SortedFunc(maps.Keys(hashes), recordedObject.compare) {
		u.KubernetesSecrets = append(u.KubernetesSecrets, recordedSecret{o, hashes[o]})
	}
	u.KubernetesServiceAccounts = slices.Concat(c.KubernetesServiceAccounts, add.KubernetesServiceAccounts)
	slices.SortFunc(u.KubernetesServiceAccounts, recordedObject.compare)
	u.KubernetesServiceAccounts = slices.Compact(u.KubernetesServiceAccounts)
	return u
}

func (c recordedCredentials) equal(d recordedCredentials) bool {
	return c.NodePodsAccessible == d.NodePodsAccessible &&
		slices.Equal(c.KubernetesSecrets, d.KubernetesSecrets) &&
		slices.Equal(c.KubernetesServiceAccounts, d.KubernetesServiceAccounts)
}

// encode writes an object as the kubelet does.
func encode(object any) ([]byte, error) {
	data, err := json.Marshal(object)
	return append(data, '\n'), err
}

// decode reads an object and checks its kind and version. As in the kubelet, an unknown field is an error: what cannot
// be understood whole is not to open an image.
func decode[T any](data []byte, kind string, meta func(*T) typeMeta) (T, error) {
	var object, none T
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&object); err != nil {
		return none, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return none, errors.New("there is more than one object")
	}
	m := meta(&object)
	if m.Kind != kind || m.APIVersion != recordVersion && m.APIVersion != recordVersionOld {
		return none, fmt.Errorf("%q of %q is no %s", m.Kind, m.APIVersion, kind)
	}
	return object, nil
}

func decodeIntent(data []byte) (intent, error) {
	return decode(data, intentKind, func(i *intent) typeMeta { return i.typeMeta })
}

func decodePulled(data []byte) (pulledRecord, error) {
	return decode(data, pulledKind, func(r *pulledRecord) typeMeta { return r.typeMeta })
}
