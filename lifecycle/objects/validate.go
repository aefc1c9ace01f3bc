// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// kind is the kind of an object, as it is written in error messages.
type kind string

const (
	kindConfigMap kind = "config map"
	kindSecret    kind = "secret"
	kindService   kind = "service"
	kindClaim     kind = "persistent volume claim"
	kindPV        kind = "persistent volume"
	kindCSIDriver kind = "CSI driver"
)

// isClusterScoped reports whether objects of this kind have no namespace.
func (k kind) isClusterScoped() bool { return k == kindPV || k == kindCSIDriver }

// validateNames returns an error unless namespace and name can be elements of a file path.
func (k kind) validateNames(namespace, name string) error {
	if !k.isClusterScoped() {
		return validateNames(namespace, name)
	}
	return validateNames("default", name)
}

// validateNames returns an error unless the namespace and name are valid, so that they can be elements of a file path.
func validateNames(namespace, name string) error {
	if msgs := validation.IsDNS1123Label(namespace); len(msgs) > 0 {
		return fmt.Errorf("namespace: %s", strings.Join(msgs, "; "))
	}
	if msgs := validation.IsDNS1123Subdomain(name); len(msgs) > 0 {
		return fmt.Errorf("name: %s", strings.Join(msgs, "; "))
	}
	return nil
}

// validateConfigMap checks the keys of the config map, which become names of variables and files, and the total size of its
// values.
func validateConfigMap(configMap *corev1.ConfigMap) error {
	size := 0
	for key, value := range configMap.Data {
		if _, ok := configMap.BinaryData[key]; ok {
			return fmt.Errorf("key %q is in data and in binaryData", key)
		}
		if err := validateKey("data", key); err != nil {
			return err
		}
		size += len(value)
	}
	for key, value := range configMap.BinaryData {
		if err := validateKey("binaryData", key); err != nil {
			return err
		}
		size += len(value)
	}
	return validateSize(size)
}

// validateSecret moves the values in stringData of the secret to data, and then checks the keys and the total size of data.
func validateSecret(secret *corev1.Secret) error {
	for key, value := range secret.StringData {
		if secret.Data == nil {
			secret.Data = make(map[string][]byte)
		}
		secret.Data[key] = []byte(value)
	}
	secret.StringData = nil
	size := 0
	for key, value := range secret.Data {
		if err := validateKey("data", key); err != nil {
			return err
		}
		size += len(value)
	}
	return validateSize(size)
}

func validateKey(field, key string) error {
	if msgs := validation.IsConfigMapKey(key); len(msgs) > 0 {
		return fmt.Errorf("%s: key %q: %s", field, key, strings.Join(msgs, "; "))
	}
	return nil
}

func validateSize(size int) error {
	if size > corev1.MaxSecretSize {
		return fmt.Errorf("%d bytes of data, the limit is %d", size, corev1.MaxSecretSize)
	}
	return nil
}

// validateService checks the fields of the service from which the environment variables of containers are computed.
func validateService(service *corev1.Service) error {
	if ip := service.Spec.ClusterIP; ip != "" && ip != corev1.ClusterIPNone {
		if errs := validation.IsValidIP(nil, ip); len(errs) > 0 {
			return fmt.Errorf("spec.clusterIP %q: %s", ip, errs[0].Detail)
		}
		if len(service.Spec.Ports) == 0 {
			return errors.New("spec.ports: required for a service with a cluster IP")
		}
	}
	for i, p := range service.Spec.Ports {
		if msgs := validation.IsValidPortNum(int(p.Port)); len(msgs) > 0 {
			return fmt.Errorf("spec.ports[%d].port %d: %s", i, p.Port, strings.Join(msgs, "; "))
		}
		switch p.Protocol {
		case "", corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
		default:
			return fmt.Errorf("spec.ports[%d].protocol %q: want TCP, UDP or SCTP", i, p.Protocol)
		}
		if msgs := validation.IsDNS1123Label(p.Name); p.Name != "" && len(msgs) > 0 {
			return fmt.Errorf("spec.ports[%d].name %q: %s", i, p.Name, strings.Join(msgs, "; "))
		}
	}
	return nil
}
