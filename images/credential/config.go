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

// Format is a format of docker configurations.
type Format uint8

// The formats, with the secret types and files that use them.
const (
	DockerConfigJSON Format = iota // kubernetes.io/dockerconfigjson, ~/.docker/config.json: {"auths": {...}}
	Dockercfg                      // kubernetes.io/dockercfg, ~/.dockercfg: only the value of "auths"
)

// Config is a docker configuration: the logins by registry.
type Config map[string]Login

// Login is a user name and a password for a registry, an entry of a [Config].
type Login struct {
	Username string
	Password string `json:"-"`
	Email    string
}

// String returns the user name. It hides the password, so that logs do not contain it.
func (l Login) String() string { return "login of " + l.Username }

// GoString returns the same text as String, so that %#v does not print the password.
func (l Login) GoString() string { return l.String() }

// UnmarshalJSON decodes one entry of a docker configuration. The field "auth" has the base64 encoding of "user:password".
// If "auth" is set, it replaces the fields "username" and "password".
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

// decodeAuth decodes the field "auth" of a docker configuration, the base64 encoding of "user:password". The padding may be
// missing.
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

// ParseConfig decodes a docker configuration and returns its logins by registry. It ignores all other fields.
func ParseConfig(data []byte, format Format) (Config, error) {
	var file struct{ Auths Config }
	var target any = &file
	if format == Dockercfg {
		target = &file.Auths
	}
	if err := json.Unmarshal(data, target); err != nil {
		return nil, fmt.Errorf("docker configuration: %w", hideInput(err))
	}
	return file.Auths, nil
}

// hideInput returns an error in place of err that does not quote the input. Errors of encoding/json quote parts of the
// input, which may be passwords.
func hideInput(err error) error {
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
	Data   []byte `json:"-"` // value of the key .dockerconfigjson or .dockercfg
}

// String returns the namespace and the name of the secret. It hides its data.
func (s Secret) String() string { return "secret " + s.Namespace + "/" + s.Name }

// GoString returns the same text as String, so that %#v does not print the data.
func (s Secret) GoString() string { return s.String() }

// LogValue returns the same text as String, so that logs do not contain the data.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// AddSecret adds the credentials of a pull secret to the keyring. A secret without data adds nothing and is no error. If
// some entries are invalid, AddSecret adds the valid ones and returns an error.
func (k *Keyring) AddSecret(secret Secret) error {
	if len(secret.Data) == 0 {
		return nil
	}
	config, err := ParseConfig(secret.Data, secret.Format)
	if err != nil {
		return fmt.Errorf("%s: %w", secret, err)
	}
	if err := k.Add(config, Source{Kind: FromSecret, Object: secret.Object}); err != nil {
		return fmt.Errorf("%s: %w", secret, err)
	}
	return nil
}
