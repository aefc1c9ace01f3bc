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

// The types below are those of k8s.io/kubelet/config/v1beta1, in the format of the kubelet's files. v1alpha1 has the same
// fields and can be read too.
const (
	recordVersion    = "kubelet.config.k8s.io/v1beta1"
	recordVersionOld = "kubelet.config.k8s.io/v1alpha1"
	pullIntentKind   = "ImagePullIntent"
	pulledRecordKind = "ImagePulledRecord"
)

type typeMeta struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
}

// pullIntent records the start of a pull. It is removed after a failed pull, or once the pulledRecord of the image is written.
type pullIntent struct {
	typeMeta
	Image string `json:"image"` // name in the container spec
}

// pulledRecord records the credentials with which an image was pulled.
type pulledRecord struct {
	typeMeta
	LastUpdatedTime   time.Time                      `json:"lastUpdatedTime"`
	ImageRef          string                         `json:"imageRef"` // ID of the image
	CredentialMapping map[string]recordedCredentials `json:"credentialMapping,omitempty"`
}

// recordedCredentials are the known credentials for one name of an image, without tag and digest.
type recordedCredentials struct {
	KubernetesSecrets         []recordedSecret `json:"kubernetesSecrets,omitempty"`
	KubernetesServiceAccounts []recordedObject `json:"kubernetesServiceAccounts,omitempty"`
	NodePodsAccessible        bool             `json:"nodePodsAccessible,omitempty"` // usable by every pod
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

func (o recordedObject) compare(other recordedObject) int {
	return cmp.Or(cmp.Compare(o.Namespace, other.Namespace), cmp.Compare(o.Name, other.Name), cmp.Compare(o.UID, other.UID))
}

// newRecordedCredentials returns the credentials to record after a pull with used, nil for an anonymous pull.
func newRecordedCredentials(used *credential.Credential) recordedCredentials {
	if used != nil {
		object := recordedObject(used.Source.Object)
		switch used.Source.Kind {
		case credential.FromSecret:
			return recordedCredentials{KubernetesSecrets: []recordedSecret{{object, used.Hash()}}}
		case credential.FromServiceAccount:
			return recordedCredentials{KubernetesServiceAccounts: []recordedObject{object}}
		}
	}
	// Every pod may use an image that was pulled anonymously or with a credential of the node.
	return recordedCredentials{NodePodsAccessible: true}
}

// merge returns the union of c and added. For a secret in both, it has the hash in added.
func (c recordedCredentials) merge(added recordedCredentials) recordedCredentials {
	// Every pod may use the image.
	if c.NodePodsAccessible || added.NodePodsAccessible {
		return recordedCredentials{NodePodsAccessible: true}
	}
	hashes := map[recordedObject]string{}
	for _, s := range slices.Concat(c.KubernetesSecrets, added.KubernetesSecrets) {
		hashes[s.recordedObject] = s.CredentialHash
	}
	var union recordedCredentials
	for _, o := range slices.SortedFunc(maps.Keys(hashes), recordedObject.compare) {
		union.KubernetesSecrets = append(union.KubernetesSecrets, recordedSecret{o, hashes[o]})
	}
	union.KubernetesServiceAccounts = slices.Concat(c.KubernetesServiceAccounts, added.KubernetesServiceAccounts)
	slices.SortFunc(union.KubernetesServiceAccounts, recordedObject.compare)
	union.KubernetesServiceAccounts = slices.Compact(union.KubernetesServiceAccounts)
	return union
}

func (c recordedCredentials) isEqual(other recordedCredentials) bool {
	return c.NodePodsAccessible == other.NodePodsAccessible &&
		slices.Equal(c.KubernetesSecrets, other.KubernetesSecrets) &&
		slices.Equal(c.KubernetesServiceAccounts, other.KubernetesServiceAccounts)
}

// encodeRecord returns the object as JSON with a newline, as in the kubelet's files.
func encodeRecord(object any) ([]byte, error) {
	data, err := json.Marshal(object)
	return append(data, '\n'), err
}

// decodeRecord decodes a record and checks its kind and version, which meta returns.
func decodeRecord[T any](data []byte, kind string, meta func(*T) typeMeta) (T, error) {
	var object, none T
	dec := json.NewDecoder(bytes.NewReader(data))
	// As in the kubelet: a record that is only partly understood must not grant access to an image.
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

func decodeIntent(data []byte) (pullIntent, error) {
	return decodeRecord(data, pullIntentKind, func(i *pullIntent) typeMeta { return i.typeMeta })
}

func decodePulledRecord(data []byte) (pulledRecord, error) {
	return decodeRecord(data, pulledRecordKind, func(r *pulledRecord) typeMeta { return r.typeMeta })
}
