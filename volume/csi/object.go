// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/optional"
	"github.com/seed81659283/nodeagent/volume"
)

// object is what the cluster knows of a driver. The zero value is that of one it knows nothing of.
type object struct {
	known           bool
	modes           []storagev1.VolumeLifecycleMode
	attach          bool
	podInfo         bool
	republish       bool
	groupPolicy     storagev1.FSGroupPolicy
	tokens          []storagev1.TokenRequest
	tokensAsSecrets bool
	labels          bool // it mounts volumes with SELinux labels
}

// objectOf returns what an object says, with the defaults of the API server for what it does not.
func objectOf(d *storagev1.CSIDriver) object {
	if d == nil {
		return object{attach: true, groupPolicy: storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy}
	}
	o := object{
		known: true, modes: d.Spec.VolumeLifecycleModes, attach: d.Spec.AttachRequired == nil || *d.Spec.AttachRequired,
		podInfo: optional.IsTrue(d.Spec.PodInfoOnMount), republish: optional.IsTrue(d.Spec.RequiresRepublish),
		groupPolicy: *optional.OrZero(d.Spec.FSGroupPolicy), tokens: d.Spec.TokenRequests,
		tokensAsSecrets: optional.IsTrue(d.Spec.ServiceAccountTokenInSecrets), labels: optional.IsTrue(d.Spec.SELinuxMount),
	}
	if len(o.modes) == 0 {
		o.modes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
	if o.groupPolicy == "" {
		o.groupPolicy = storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	}
	return o
}

// object returns what the cluster knows of a driver.
func (p *Plugin) object(ctx context.Context, driver string) (object, error) {
	if p.opts.Drivers == nil {
		return objectOf(nil), nil
	}
	d, err := p.opts.Drivers.CSIDriver(ctx, driver)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return objectOf(nil), nil
	case err != nil:
		return object{}, fmt.Errorf("CSIDriver %s: %w", driver, err)
	}
	return objectOf(d), nil
}

// allows returns why a driver has no volumes of a mode.
func (o *object) allows(driver string, mode storagev1.VolumeLifecycleMode) error {
	switch {
	case !o.known && mode == storagev1.VolumeLifecyclePersistent || slices.Contains(o.modes, mode):
		return nil
	case !o.known:
		return fmt.Errorf("volume mode %q not supported by driver %s (no CSIDriver object)", mode, driver)
	}
	return fmt.Errorf("volume mode %q not supported by driver %s (only supports %q)", mode, driver, o.modes)
}

// changesGroup reports whether the files of a volume are given to a group by the agent.
func (o *object) changesGroup(s *volumeSpec, group *int64) bool {
	switch {
	case group == nil || s.readOnly || o.groupPolicy == storagev1.NoneFSGroupPolicy:
		return false
	case o.groupPolicy == storagev1.FileFSGroupPolicy:
		return true
	}
	return s.fsType != "" && s.writers
}

// podInfo is what a driver is told of a pod, if it wants to know.
func podInfo(pod *corev1.Pod, mode storagev1.VolumeLifecycleMode) map[string]string {
	const prefix = "csi.storage.k8s.io/"
	return map[string]string{
		prefix + "pod.name": pod.Name, prefix + "pod.namespace": pod.Namespace, prefix + "pod.uid": string(pod.UID),
		prefix + "serviceAccount.name": pod.Spec.ServiceAccountName,
		prefix + "ephemeral":           strconv.FormatBool(mode == storagev1.VolumeLifecycleEphemeral),
	}
}

// tokensKey is the key of the tokens that a driver gets.
const tokensKey = "csi.storage.k8s.io/serviceAccount.tokens"

// tokenText is a token as drivers read it.
type tokenText struct {
	Token               string      `json:"token"`
	ExpirationTimestamp metav1.Time `json:"expirationTimestamp"`
}

// tokens returns the tokens that a driver wants of a pod, by their audiences, as JSON, and their values.
func (p *Plugin) tokens(ctx context.Context, o *object, pod *corev1.Pod) (text string, values []string, err error) {
	if len(o.tokens) == 0 {
		return "", nil, nil
	}
	if p.cache == nil {
		return "", nil, errors.New("the driver wants service account tokens, and there are none on this node")
	}
	all := make(map[string]tokenText, len(o.tokens))
	for _, want := range o.tokens {
		t, err := p.cache.Token(ctx, volume.TokenRequest{
			Namespace: pod.Namespace, ServiceAccount: pod.Spec.ServiceAccountName, Audience: want.Audience,
			Seconds: *optional.OrZero(want.ExpirationSeconds), Pod: pod.Name, PodUID: string(pod.UID),
		})
		if err != nil {
			return "", nil, err
		}
		all[want.Audience] = tokenText{t.Value, metav1.NewTime(t.Expires)}
		values = append(values, t.Value)
	}
	b, err := json.Marshal(all)
	return string(b), values, err
}

// secret returns the values of a secret; a nil reference is that of none.
func (p *Plugin) secret(ctx context.Context, field string, ref *corev1.SecretReference) (map[string]string, error) {
	if ref == nil {
		return nil, nil
	}
	if p.opts.Secrets == nil {
		return nil, fmt.Errorf("%s %s/%s: there are no secrets on this node", field, ref.Namespace, ref.Name)
	}
	s, err := p.opts.Secrets.Secret(ctx, ref.Namespace, ref.Name)
	if err != nil {
		return nil, fmt.Errorf("%s %s/%s: %w", field, ref.Namespace, ref.Name, err)
	}
	values := make(map[string]string, len(s.Data))
	for key, value := range s.Data {
		values[key] = string(value)
	}
	return values, nil
}

// with returns a map with more in it. Neither is changed.
func with(m, more map[string]string) map[string]string {
	if len(more) == 0 {
		return m
	}
	all := make(map[string]string, len(m)+len(more))
	maps.Copy(all, m)
	maps.Copy(all, more)
	return all
}
