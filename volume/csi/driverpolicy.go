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

// driverPolicy has the fields of the CSIDriver object of a driver, with their defaults. exists is false if the cluster has no
// such object.
type driverPolicy struct {
	exists            bool
	lifecycleModes    []storagev1.VolumeLifecycleMode
	attachRequired    bool
	podInfoOnMount    bool
	requiresRepublish bool
	groupPolicy       storagev1.FSGroupPolicy
	tokens            []storagev1.TokenRequest
	tokensAsSecrets   bool
	seLinuxMount      bool // the driver mounts volumes with SELinux labels
}

// policyOf returns the policy in a CSIDriver object with defaults. Without an object, driver is nil.
func policyOf(driver *storagev1.CSIDriver) driverPolicy {
	if driver == nil {
		return driverPolicy{attachRequired: true, groupPolicy: storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy}
	}
	o := driverPolicy{
		exists: true, lifecycleModes: driver.Spec.VolumeLifecycleModes, attachRequired: driver.Spec.AttachRequired == nil || *driver.Spec.AttachRequired,
		podInfoOnMount: optional.IsTrue(driver.Spec.PodInfoOnMount), requiresRepublish: optional.IsTrue(driver.Spec.RequiresRepublish),
		groupPolicy: *optional.OrZero(driver.Spec.FSGroupPolicy), tokens: driver.Spec.TokenRequests,
		tokensAsSecrets: optional.IsTrue(driver.Spec.ServiceAccountTokenInSecrets), seLinuxMount: optional.IsTrue(driver.Spec.SELinuxMount),
	}
	if len(o.lifecycleModes) == 0 {
		o.lifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
	if o.groupPolicy == "" {
		o.groupPolicy = storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	}
	return o
}

// readPolicy returns the policy in the CSIDriver object of the driver with this name. If there is no such object, it returns
// the defaults.
func (p *Plugin) readPolicy(ctx context.Context, driver string) (driverPolicy, error) {
	if p.opts.Drivers == nil {
		return policyOf(nil), nil
	}
	d, err := p.opts.Drivers.CSIDriver(ctx, driver)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return policyOf(nil), nil
	case err != nil:
		return driverPolicy{}, fmt.Errorf("CSIDriver %s: %w", driver, err)
	}
	return policyOf(d), nil
}

// checkMode returns an error, with the name of the driver, if the policy does not allow volumes with this lifecycle mode.
func (o *driverPolicy) checkMode(driver string, mode storagev1.VolumeLifecycleMode) error {
	switch {
	case !o.exists && mode == storagev1.VolumeLifecyclePersistent || slices.Contains(o.lifecycleModes, mode):
		return nil
	case !o.exists:
		return fmt.Errorf("volume mode %q not supported by driver %s (no CSIDriver object)", mode, driver)
	}
	return fmt.Errorf("volume mode %q not supported by driver %s (only supports %q)", mode, driver, o.lifecycleModes)
}

// needsFSGroup reports whether the agent must change the volume's files to this group, the fsGroup of the pod or nil.
func (o *driverPolicy) needsFSGroup(spec *volumeSpec, group *int64) bool {
	switch {
	case group == nil || spec.readOnly || o.groupPolicy == storagev1.NoneFSGroupPolicy:
		return false
	case o.groupPolicy == storagev1.FileFSGroupPolicy:
		return true
	}
	return spec.fsType != "" && spec.singleNodeWriter
}

// podInfoAttributes returns the volume attributes that describe the pod, such as its name, for drivers with podInfoOnMount.
func podInfoAttributes(pod *corev1.Pod, mode storagev1.VolumeLifecycleMode) map[string]string {
	const prefix = "csi.storage.k8s.io/"
	return map[string]string{
		prefix + "pod.name": pod.Name, prefix + "pod.namespace": pod.Namespace, prefix + "pod.uid": string(pod.UID),
		prefix + "serviceAccount.name": pod.Spec.ServiceAccountName,
		prefix + "ephemeral":           strconv.FormatBool(mode == storagev1.VolumeLifecycleEphemeral),
	}
}

// tokensKey is the key under which a driver gets the service account tokens of the pod, among the volume attributes or the
// secrets.
const tokensKey = "csi.storage.k8s.io/serviceAccount.tokens"

// tokenText is one token in the JSON format that drivers expect.
type tokenText struct {
	Token               string      `json:"token"`
	ExpirationTimestamp metav1.Time `json:"expirationTimestamp"`
}

// requestTokens returns the pod's service account tokens for the driver as JSON by audience. values has the tokens, to remove
// them from errors.
func (p *Plugin) requestTokens(ctx context.Context, policy *driverPolicy, pod *corev1.Pod) (text string, values []string, err error) {
	if len(policy.tokens) == 0 {
		return "", nil, nil
	}
	if p.cache == nil {
		return "", nil, errors.New("driver needs service account tokens: csi.Options.Tokens is nil")
	}
	all := make(map[string]tokenText, len(policy.tokens))
	for _, want := range policy.tokens {
		t, err := p.cache.Token(ctx, volume.TokenRequest{
			Namespace: pod.Namespace, ServiceAccount: pod.Spec.ServiceAccountName, Audience: want.Audience,
			ExpirationSeconds: *optional.OrZero(want.ExpirationSeconds), Pod: pod.Name, PodUID: string(pod.UID),
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

// readSecret returns the data of the secret that a field refers to, or nil if ref is nil.
func (p *Plugin) readSecret(ctx context.Context, field string, ref *corev1.SecretReference) (map[string]string, error) {
	if ref == nil {
		return nil, nil
	}
	if p.opts.Secrets == nil {
		return nil, fmt.Errorf("%s %s/%s: csi.Options.Secrets is nil", field, ref.Namespace, ref.Name)
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

// mergeMaps returns a map with the entries of both, preferably from more. It may return m itself.
func mergeMaps(m, more map[string]string) map[string]string {
	if len(more) == 0 {
		return m
	}
	all := make(map[string]string, len(m)+len(more))
	maps.Copy(all, m)
	maps.Copy(all, more)
	return all
}
