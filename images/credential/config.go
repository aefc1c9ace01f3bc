// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
)

// Format is how a configuration of docker is written.
type Format uint8

// The formats, by the types of secrets that hold them.
const (
	DockerConfigJSON Format = iota // kubernetes.io/dockerconfigjson, ~/.docker/config.json: {"auths": {...}}
	Dockercfg                      // kubernetes.io/dockercfg, ~/.dockercfg: what stands behind "auths"
)

// Config is a configuration of docker: what to show to which registry.
type Config map[string]Login

// Login is one entry of a [Config].
type Login struct {
	Username string
	Password string `json:"-"`
	Email    string
}

// String names the user only.
func (l Login) String() string { return "login of " + l.Username }

// GoString is String.
func (l Login) GoString() string { return l.String() }

// UnmarshalJSON reads an entry. A field "auth", which is the base64 of "user:password", wins over the two.
func (l *Login) UnmarshalJSON(data []byte) error {
	var e struct {
		Username, Password, Email, Auth string
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return err
	}
	*l = Login{Username: e.Username, Password: e.Password, Email: e.Email}
	if e.Auth == "" {
		return nil
	}
	var err error
	l.Username, l.Password, err = decodeAuth(e.Auth)
	return err
}

// decodeAuth reads base64 with its padding or without.
func decodeAuth(auth string) (username, password string, err error) {
	encoding := base64.RawStdEncoding
	if strings.HasSuffix(strings.TrimSpace(auth), "=") {
		encoding = base64.StdEncoding
	}
	decoded, err := encoding.DecodeString(auth)
	if err != nil {
		return "", "", errors.New("auth: not base64")
	}
	username, password, found := strings.Cut(string(decoded), ":")
	if !found {
		return "", "", errors.New("auth: not the base64 of a user name, a colon and a password")
	}
	return username, password, nil
}

// ParseConfig reads a configuration. Fields that say nothing about credentials are passed over.
func ParseConfig(data []byte, format Format) (Config, error) {
	var file struct{ Auths Config }
	var target any = &file
	if format == Dockercfg {
		target = &file.Auths
	}
	if err := json.Unmarshal(data, target); err != nil {
		return nil, fmt.Errorf("docker configuration: %w", withoutText(err))
	}
	return file.Auths, nil
}

// withoutText returns an error of encoding/json that holds nothing of what was to be read.
func withoutText(err error) error {
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("not JSON, at byte %d", e.Offset)
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("not of the right type, at byte %d", e.Offset)
	}
	return err
}

// Secret is a pull secret of a pod.
type Secret struct {
	Object
	Format Format
	Data   []byte `json:"-"` // under the key .dockerconfigjson or .dockercfg
}

// String names the secret only.
func (s Secret) String() string { return "secret " + s.Namespace + "/" + s.Name }

// GoString is String.
func (s Secret) GoString() string { return s.String() }

// LogValue is String.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// AddSecret puts the credentials of a pull secret on the keyring. A secret without data holds none.
func (k *Keyring) AddSecret(s Secret) error {
	if len(s.Data) == 0 {
		return nil
	}
	config, err := ParseConfig(s.Data, s.Format)
	if err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	if err := k.Add(config, Source{Kind: FromSecret, Object: s.Object}); err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	return nil
}
