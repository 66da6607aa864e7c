/* Fields of spinors and links as vectors, for Wilson's Dirac operator (see the package), float or
 * double (macro REAL), for N = 2 or 3 colours (macro N) in D = 2 or 4 dimensions (macro D). Stands on
 * su3/fields.c.
 *
 * Lanes of a vector are the same site of several sub-lattices of one configuration, and where there
 * are fewer of these than lanes, of several fields: lane `field * n_parts + part`. A unit is what
 * one vector has: fields of as many configurations, or right-hand sides of one. The neighbours of
 * a site in all lanes are one other site, in other lanes where the hop leaves the sub-lattice.
 *
 * Half a lattice of spinors or links is (half, numbers, LANES), even sites before odd ones.
 */
#define SPINS D
#define SPINOR (2 * SPINS * N) /* numbers of a spinor */
#define ALL 2                  /* sites of both parities */

typedef struct {
    const int64_t *sites;        /* (2, half, n_parts): numbers of the sites of each parity */
    const int64_t *neighbours;   /* (2, half, D, 2): x + mu, x - mu in the half of the other parity,
                                    twice, plus 1 where lanes change */
    const int64_t *permutations; /* (D, 2, LANES): the lane from which each comes then */
    int64_t half, n_parts;
    int64_t batch, n_rhs;
} Lattice;

INLINE int64_t n_fields(const Lattice *lattice) { return LANES / lattice->n_parts; }

static int64_t n_groups(const Lattice *lattice)
{
    const int64_t n = n_fields(lattice);
    return (lattice->batch + n - 1) / n;
}

/* Units: with several configurations each right-hand side of a group of them, with one some of its
 * right-hand sides. */
static int64_t n_units(const Lattice *lattice)
{
    const int64_t n = n_fields(lattice);
    return lattice->batch > 1 ? n_groups(lattice) * lattice->n_rhs : (lattice->n_rhs + n - 1) / n;
}

static int64_t group_of(const Lattice *lattice, int64_t unit)
{
    return lattice->batch > 1 ? unit / lattice->n_rhs : 0;
}

/* Number of a field in (batch, n_rhs), or -1 where a lane has none. */
static int64_t field_of(const Lattice *lattice, int64_t unit, int64_t number_in_unit)
{
    if (lattice->batch > 1) {
        const int64_t b = unit / lattice->n_rhs * n_fields(lattice) + number_in_unit;
        return b < lattice->batch ? b * lattice->n_rhs + unit % lattice->n_rhs : -1;
    }
    const int64_t r = unit * n_fields(lattice) + number_in_unit;
    return r < lattice->n_rhs ? r : -1;
}

/* Where the numbers of a site lie in each lane, null in a lane without a field. */
typedef struct {
    int64_t offset[LANES], part[LANES];
    int64_t width; /* numbers a site */
    int halved;    /* whether the field has the sites of one parity only */
} Rows;

static Rows rows_of_spinors(const Lattice *lattice, int64_t unit, int64_t parity)
{
    Rows rows = {.width = SPINOR, .halved = parity != ALL};
    const int64_t size = lattice->half * lattice->n_parts * SPINOR * (rows.halved ? 1 : 2);
    for (int64_t l = 0; l < LANES; l++) {
        const int64_t field = field_of(lattice, unit, l / lattice->n_parts);
        rows.offset[l] = field < 0 ? -1 : field * size;
        rows.part[l] = l % lattice->n_parts;
    }
    return rows;
}

INLINE int64_t place_of(const Rows *rows, const int64_t *sites, int64_t l)
{
    const int64_t site = sites[rows->part[l]];
    return rows->offset[l] + (rows->halved ? site >> 1 : site) * rows->width;
}

static const REAL nothing[NUMBERS + SPINOR];

/* `count` numbers of a site in all lanes; those of the last vector may be read twice. */
INLINE void gather(vec *to, const REAL *from, const Rows *rows, const int64_t *sites,
                   const int64_t count)
{
    const REAL *row[LANES];
    UNROLLED for (int l = 0; l < LANES; l++)
        row[l] = rows->offset[l] < 0 ? nothing : from + place_of(rows, sites, l);
    if (count < LANES) {
        for (int64_t k = 0; k < count; k++)
            for (int l = 0; l < LANES; l++)
                to[k][l] = row[l][k];
        return;
    }
    for (int64_t begin = 0; begin < count; begin += LANES) {
        const int64_t first = smaller(begin, count - LANES);
        vec block[LANES];
        UNROLLED for (int l = 0; l < LANES; l++) block[l] = *(const loose *)(row[l] + first);
        transpose(block);
        UNROLLED for (int l = 0; l < LANES; l++) to[first + l] = block[l];
    }
}

INLINE void scatter(REAL *to, const vec *from, const Rows *rows, const int64_t *sites,
                    const int64_t count)
{
    if (count < LANES) {
        for (int l = 0; l < LANES; l++)
            for (int64_t k = 0; k < count && rows->offset[l] >= 0; k++)
                to[place_of(rows, sites, l) + k] = from[k][l];
        return;
    }
    for (int64_t begin = 0; begin < count; begin += LANES) {
        const int64_t first = smaller(begin, count - LANES);
        vec block[LANES];
        UNROLLED for (int l = 0; l < LANES; l++) block[l] = from[first + l];
        transpose(block);
        UNROLLED for (int l = 0; l < LANES; l++)
            if (rows->offset[l] >= 0)
                *(loose *)(to + place_of(rows, sites, l) + first) = block[l];
    }
}

static void gather_spinors(const Lattice *lattice, vec *to, const REAL *psi, int64_t unit,
                           int64_t parity, int halved)
{
    const Rows rows = rows_of_spinors(lattice, unit, halved ? parity : ALL);
    const int64_t *sites = lattice->sites + parity * lattice->half * lattice->n_parts;
    for (int64_t x = 0; x < lattice->half; x++)
        gather(to + x * SPINOR, psi, &rows, sites + x * lattice->n_parts, SPINOR);
}

static void scatter_spinors(const Lattice *lattice, REAL *psi, const vec *from, int64_t unit,
                            int64_t parity, int halved)
{
    const Rows rows = rows_of_spinors(lattice, unit, halved ? parity : ALL);
    const int64_t *sites = lattice->sites + parity * lattice->half * lattice->n_parts;
    for (int64_t x = 0; x < lattice->half; x++)
        scatter(psi, from + x * SPINOR, &rows, sites + x * lattice->n_parts, SPINOR);
}

/* Every thread makes the same call of what has a counter, with memory of its own, and takes the next
 * unit from the counter that all share. */
#define FOR_UNITS(count)                                                                          \
    for (int64_t unit; (unit = __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED)) < (count);)

int64_t n_lanes(void) { return LANES; }

int64_t count_groups(const Lattice *lattice) { return n_groups(lattice); }

int64_t count_units(const Lattice *lattice) { return n_units(lattice); }

/* Bytes of so many halves of a lattice of spinors. */
int64_t memory_size(const Lattice *lattice, int64_t n_halves)
{
    return BYTES * (1 + n_halves * lattice->half * SPINOR);
}

/* Links (batch, D, V, N, N) as (groups, 2, half, D, NUMBERS, LANES). One configuration is repeated
 * in the lanes of all fields. */
void pack_links(const REAL *links, REAL *packed, const Lattice *lattice, int64_t *counter)
{
    const int64_t half = lattice->half, parts = lattice->n_parts;
    const int64_t volume = 2 * half * parts, size = 2 * half * D * NUMBERS;
    FOR_UNITS(n_groups(lattice))
    {
        for (int64_t mu = 0; mu < D; mu++) {
            Rows rows = {.width = NUMBERS, .halved = 0};
            for (int64_t l = 0; l < LANES; l++) {
                const int64_t b = lattice->batch > 1 ? unit * n_fields(lattice) + l / parts : 0;
                rows.offset[l] = b < lattice->batch ? (b * D + mu) * volume * NUMBERS : -1;
                rows.part[l] = l % parts;
            }
            for (int64_t x = 0; x < 2 * half; x++)
                gather((vec *)packed + unit * size + (x * D + mu) * NUMBERS, links, &rows,
                       lattice->sites + x * parts, NUMBERS);
        }
    }
}
